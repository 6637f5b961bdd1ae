package fake

import (
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
)

// keptFaults is how many faults of one GPU are reported at most.
const keptFaults = 64

// Judge lets the driver want something done with a GPU, in place of what it wanted
// before; gpu.VerdictNone is the all-clear. What stands on the GPU goes on. For a GPU
// that does not answer there is LoseGPU.
func (d *Driver) Judge(v driver.Verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v.Do == gpu.VerdictNone {
		delete(d.faults.verdicts, v.GPUID)
		return
	}
	d.faults.verdicts[v.GPUID] = v
}

// Fault lets the hardware report a fault of a program. One that comes at the time of
// another of its GPU, or before it, comes a nanosecond after it.
func (d *Driver) Fault(f driver.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.faults.reported[f.GPUID]
	if n := len(all); n > 0 && !f.At.After(all[n-1].At) {
		f.At = all[n-1].At.Add(time.Nanosecond)
	}
	all = append(all, f)
	d.faults.reported[f.GPUID] = all[max(0, len(all)-keptFaults):]
}

// Share says how tasks share the GPUs of all hosts from now on: gpu.SharingMPS, or ""
// for time slices.
func (d *Driver) Share(how string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.sharing = how
}

// ails adds what is wrong with a GPU to what is observed.
func (d *Driver) ails(inv *driver.Inventory, id string) {
	if why := d.hw.boards[id].lost; why != "" {
		inv.Verdicts = append(inv.Verdicts, driver.Verdict{GPUID: id, Do: gpu.VerdictBroken, Why: why})
	} else if v, ails := d.faults.verdicts[id]; ails {
		inv.Verdicts = append(inv.Verdicts, v)
	}
	inv.Faults = append(inv.Faults, d.faults.reported[id]...)
}

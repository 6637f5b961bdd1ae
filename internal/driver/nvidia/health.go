package nvidia

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// health is what the driver reported of GPUs since the machine was started, in
// health.json: an XID is told once, and what follows from it lasts.
type health struct {
	file   string
	Boot   string        `json:"boot"`
	Ails   map[string]xa `json:"ails"` // by GPU: the weightiest that is not over
	faults map[string][]driver.Fault
	Seen   map[int]int `json:"seen"` // XIDs, how often
}

// xa is an XID that a GPU ails from.
type xa struct {
	XID int       `json:"xid"`
	At  time.Time `json:"at"`
}

// Bounds of what is told.
const (
	faultsKept = 64
	faultsFor  = time.Hour
	// settleFor is how long after an XID the driver's word that nothing is to be done
	// is not believed yet.
	settleFor = time.Minute
	// hotFor is how long the hardware must hold clocks down before it counts.
	hotFor = 30 * time.Second
	// looksFailed in a row make a GPU broken, and are tried more seldom from then on.
	looksFailed = 3
	retryAfter  = time.Minute
)

// Bits of clock event reasons: the hardware's own brakes. A cap by power or by the
// software is no fault.
const hotBits = 0x40 | 0x80

func (h *health) load(file, boot string) error {
	h.file = file
	if err := getFile(file, h); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if h.Boot != boot || h.Ails == nil { // a reboot resets every GPU
		h.Boot, h.Ails, h.Seen = boot, map[string]xa{}, map[int]int{}
	}
	h.faults = map[string][]driver.Fault{}
	return nil
}

// hear takes in the XIDs that were reported since the last time.
func (d *Driver) hear(events []event, now time.Time) error {
	changed := false
	for _, e := range events {
		x, known := xids[e.XID]
		if !known {
			x.what = "not in the table of those that matter"
		}
		o := d.hit(e)
		d.o.Log.Warn("the driver reports an XID", "xid", e.XID, "what", x.what, "gpu", e.GPU, "part", o.String())
		d.mu.Lock()
		d.health.Seen[e.XID]++
		if x.fault {
			d.health.note(e, o, x, now)
		}
		if old, ails := d.health.Ails[e.GPU]; x.do != gpu.VerdictNone && (!ails || weight(x.do) >= weight(xids[old.XID].do)) {
			d.health.Ails[e.GPU] = xa{XID: e.XID, At: now}
		}
		d.mu.Unlock()
		changed = true
	}
	if !changed {
		return nil
	}
	return d.saveHealth()
}

func (d *Driver) saveHealth() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	h := health{Boot: d.health.Boot, Ails: maps.Clone(d.health.Ails), Seen: maps.Clone(d.health.Seen)}
	d.mu.Unlock()
	return putFile(d.health.file, h)
}

// note keeps a fault of a program. Two of one GPU never have the same time.
func (h *health) note(e event, o work.Owner, x xid, now time.Time) {
	fs := h.faults[e.GPU]
	if n := len(fs); n > 0 && !now.After(fs[n-1].At) {
		now = fs[n-1].At.Add(time.Nanosecond)
	}
	fs = append(fs, driver.Fault{GPUID: e.GPU, At: now, Owner: o, Code: fmt.Sprintf("XID %d", e.XID), What: x.what})
	h.faults[e.GPU] = fs[max(len(fs)-faultsKept, 0):]
}

// hit is whose slice an event hit; zero where nobody can say.
func (d *Driver) hit(e event) work.Owner {
	d.mu.Lock()
	defer d.mu.Unlock()
	var on []work.Owner
	for o, r := range d.parts {
		for _, p := range r.Slices {
			if p.GPUID == e.GPU && (e.GI == everywhere || p.mig() && p.Made && p.GI == e.GI) {
				on = append(on, o)
				break
			}
		}
	}
	if len(on) == 1 {
		return on[0]
	}
	return work.Owner{}
}

func weight(v gpu.Verdict) int { return slices.Index(gpu.Verdicts(), v) }

// ailment is a verdict in the making.
type ailment struct {
	driver.Verdict
	host bool
}

func (a *ailment) worse(do gpu.Verdict, why, mend string) {
	if weight(do) > weight(a.Do) {
		a.Do, a.Why, a.Mend = do, why, mend
	}
}

// judge says what is to be done with a GPU. d.mu is held.
func (d *Driver) judge(c *card, now time.Time) (a ailment, over bool) {
	a.GPUID = c.UUID
	if c.absent {
		a.worse(gpu.VerdictBroken, "the driver does not list it any more", "check the machine's log for it (dmesg), then reboot")
		return a, false
	}
	if x, ails := d.health.Ails[c.UUID]; ails {
		row := xids[x.XID]
		over = c.last != nil && c.fault == "" && c.last.Recovery == 0 && now.Sub(x.At) > settleFor && row.mend == reset
		if !over {
			a.worse(row.do, fmt.Sprintf("XID %d (%s)", x.XID, row.what), c.cure(row.mend))
			a.host = row.host
		}
	}
	if c.failed >= looksFailed || c.fault != "" && c.last == nil {
		a.worse(gpu.VerdictBroken, "it does not answer: "+c.fault, c.cure(reset))
	}
	if l := c.last; l != nil {
		if row := recovery[l.Recovery]; row.do != gpu.VerdictNone {
			a.worse(row.do, row.what, c.cure(row.mend))
			a.host = a.host || row.host
		}
		switch {
		case l.RemapFailed:
			a.worse(gpu.VerdictCordon, "remapping a row of its memory failed", c.cure(replace))
		case l.RemapWaits:
			a.worse(gpu.VerdictCordon, "a row of its memory waits to be remapped", c.cure(reset))
		case l.Recovery < 0 && l.ECC > 0: // a driver that does not say what is to be done
			a.worse(gpu.VerdictCordon, fmt.Sprintf("%d uncorrected ECC errors", l.ECC), c.cure(reset))
		}
		if !c.hotSince.IsZero() && now.Sub(c.hotSince) >= hotFor {
			a.worse(gpu.VerdictCordon, "the hardware holds its clocks down (heat or power)", "check its cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER")
		}
	}
	if c.why != "" {
		a.worse(gpu.VerdictCordon, c.why, "")
	}
	return a, over
}

// cure is the command that mends the GPU once it is empty.
func (c *card) cure(r remedy) string {
	switch r {
	case reset:
		return fmt.Sprintf("nvidia-smi --gpu-reset -i %d", c.at.Index)
	case reboot:
		return "reboot the machine"
	case replace:
		return "have the GPU replaced"
	case none:
	}
	return ""
}

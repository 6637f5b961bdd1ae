package drivertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Ills lets a test make the GPUs of a driver ail. A nil function is something that this
// driver never says.
type Ills struct {
	Cordon func(id string)                       // makes the driver want no new work on a GPU
	Drain  func(id string)                       // makes it want the GPU drained
	Lose   func(id string)                       // lets the GPU answer no more
	Clear  func(id string)                       // mends it, whatever was wrong with it
	Fault  func(id string, o work.Owner)         // lets the hardware report a fault of a program on its slice
	Await  func(driver.Driver, func() bool) bool // tries until true, where the driver sees a thing only by and by; nil = at once
}

// HealthCheck is one rule of what a driver says of GPUs that ail.
type HealthCheck struct {
	Name string
	Can  func(Ills) bool // whether the driver ever says so
	Run  func(ctx context.Context, d driver.Driver, ills Ills) error
}

// RunHealth checks what a driver says of GPUs that ail. open returns one over hardware
// that is empty and well.
func RunHealth(t *testing.T, open func(t *testing.T) (driver.Driver, Ills)) {
	for _, c := range HealthChecks() {
		t.Run(c.Name, func(t *testing.T) {
			d, ills := open(t)
			defer d.Close()
			if !c.Can(ills) {
				t.Skip("this driver never says so")
			}
			if err := c.Run(t.Context(), d, ills); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// HealthChecks lists the rules.
func HealthChecks() []HealthCheck {
	judges := func(name string, how func(Ills) func(string), want gpu.Verdict) HealthCheck {
		return HealthCheck{name, func(i Ills) bool { return how(i) != nil }, func(ctx context.Context, d driver.Driver, i Ills) error {
			return verdict(ctx, d, i, how(i), want)
		}}
	}
	return []HealthCheck{
		judges("wants no new work", func(i Ills) func(string) { return i.Cordon }, gpu.VerdictCordon),
		judges("wants a GPU drained", func(i Ills) func(string) { return i.Drain }, gpu.VerdictDrain),
		judges("loses a GPU", func(i Ills) func(string) { return i.Lose }, gpu.VerdictBroken),
		{"reports faults of programs", func(i Ills) bool { return i.Fault != nil }, faults},
	}
}

// until waits for a condition as the driver needs it.
func (i Ills) until(d driver.Driver, ok func() bool) bool {
	if i.Await == nil {
		return ok()
	}
	return i.Await(d, ok)
}

// verdict lets one GPU of four ail, and get well again.
func verdict(ctx context.Context, d driver.Driver, ills Ills, ail func(string), want gpu.Verdict) error {
	b, err := newBench(ctx, d)
	if err != nil {
		return err
	}
	stands := b.part(b.owner(), 1, whole())
	if _, err := b.carve(stands); err != nil {
		return err
	}
	id := b.hosts[1].GPUs[0].ID
	seen := func(want ...gpu.Verdict) func() bool {
		return func() bool {
			var inv driver.Inventory
			if inv, err = d.Observe(ctx); err != nil {
				return false
			}
			var got []gpu.Verdict
			for _, v := range inv.Verdicts {
				if v.GPUID == id {
					got = append(got, v.Do)
				}
			}
			if err = CheckHealth(inv); err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("the verdict on GPU %s is %q, want %q", id, got, want)
			}
			return err == nil
		}
	}
	ail(id)
	if !ills.until(d, seen(want)) {
		return err
	}
	if want != gpu.VerdictBroken { // what stands there goes on
		if left, err := b.standing(); err != nil || !slices.Equal(left, []work.Owner{stands.Owner}) {
			return fmt.Errorf("a GPU to %s lost what stood on it: %v stand, %w", want, left, err)
		}
		if err := b.free(stands); err != nil {
			return fmt.Errorf("a GPU to %s cannot be emptied: %w", want, err)
		}
	}
	ills.Clear(id)
	if !ills.until(d, seen()) {
		return err
	}
	return nil
}

// faults lets the hardware report two faults on one GPU and sees that they stay what they are.
func faults(ctx context.Context, d driver.Driver, ills Ills) error {
	b, err := newBench(ctx, d)
	if err != nil {
		return err
	}
	p := b.part(b.owner(), 0, whole())
	if _, err := b.carve(p); err != nil {
		return err
	}
	id := b.hosts[0].GPUs[0].ID
	var got []driver.Fault
	seen := func(n int) func() bool {
		return func() bool {
			var inv driver.Inventory
			if inv, err = d.Observe(ctx); err == nil {
				err = CheckHealth(inv)
			}
			got = slices.DeleteFunc(inv.Faults, func(f driver.Fault) bool { return f.GPUID != id })
			if err == nil && len(got) != n {
				err = fmt.Errorf("%d faults were reported of GPU %s, shown are %+v", n, id, got)
			}
			return err == nil
		}
	}
	ills.Fault(id, p.Owner)
	if !ills.until(d, seen(1)) {
		return err
	}
	first := got[0]
	if first.Owner != p.Owner && first.Owner != (work.Owner{}) {
		return fmt.Errorf("a fault on the slice of %v is said to be one of %v", p.Owner, first.Owner)
	}
	ills.Fault(id, p.Owner)
	if !ills.until(d, seen(2)) {
		return err
	}
	if !sameFault(got[0], first) || !got[1].At.After(first.At) {
		return fmt.Errorf("a fault was shown as %+v, and after another as %+v", first, got)
	}
	return b.free(p)
}

func sameFault(a, b driver.Fault) bool {
	return a.GPUID == b.GPUID && a.At.Equal(b.At) && a.Code == b.Code && a.Owner == b.Owner
}

// CheckHealth says where the verdicts and the faults of what a driver saw break the
// contract: of GPUs that are not there, without a word of why, twice, or out of order.
func CheckHealth(inv driver.Inventory) error {
	here, judged, last := map[string]bool{}, map[string]bool{}, map[string]time.Time{}
	for _, h := range inv.Hosts {
		for _, g := range h.GPUs {
			here[g.ID] = true
		}
	}
	for _, v := range inv.Verdicts {
		if !here[v.GPUID] || judged[v.GPUID] || v.Why == "" || v.Do == gpu.VerdictNone || !slices.Contains(gpu.Verdicts(), v.Do) {
			return fmt.Errorf("verdict %+v: expected one each of GPUs that are there, to cordon, drain or break, with a word of why", v)
		}
		judged[v.GPUID] = true
	}
	for _, f := range inv.Faults {
		if !here[f.GPUID] || f.Code == "" || !f.At.After(last[f.GPUID]) {
			return fmt.Errorf("fault %+v: expected a GPU that is there, a code, and a time after %v, which its last one had", f, last[f.GPUID])
		}
		last[f.GPUID] = f.At
	}
	return nil
}

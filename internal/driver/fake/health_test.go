package fake_test

import (
	"context"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/drivertest"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// ills lets the GPUs of a fake driver ail.
func ills(d *fake.Driver) drivertest.Ills {
	judge := func(do gpu.Verdict) func(string) {
		return func(id string) { d.Judge(driver.Verdict{GPUID: id, Do: do, Why: "for a test"}) }
	}
	return drivertest.Ills{
		Cordon: judge(gpu.VerdictCordon), Drain: judge(gpu.VerdictDrain),
		Lose:  func(id string) { d.LoseGPU(id, "for a test") },
		Clear: func(id string) { judge(gpu.VerdictNone)(id); d.LoseGPU(id, "") },
		Fault: func(id string, o work.Owner) {
			d.Fault(driver.Fault{GPUID: id, At: time.Unix(1, 0), Owner: o, Code: "XID 31", What: "GPU memory page fault"})
		},
	}
}

func TestHealth(t *testing.T) {
	drivertest.RunHealth(t, func(t *testing.T) (driver.Driver, drivertest.Ills) {
		d := open(t, "2x2xH100-80GB", noTime)
		return d, ills(d)
	})
}

// TestHealthChecksCatch shows each rule catching a driver that breaks it.
func TestHealthChecksCatch(t *testing.T) {
	now := time.Unix(5, 0)
	for name, look := range map[string]func(*driver.Inventory){
		"wants no new work":          func(inv *driver.Inventory) { inv.Verdicts = nil },
		"wants a GPU drained":        func(inv *driver.Inventory) { inv.Parts = nil },
		"loses a GPU":                func(inv *driver.Inventory) { inv.Verdicts = append(inv.Verdicts, inv.Verdicts...) },
		"reports faults of programs": func(inv *driver.Inventory) { now = now.Add(1); shift(inv, now) },
	} {
		for _, c := range drivertest.HealthChecks() {
			if c.Name != name {
				continue
			}
			inner := open(t, "2x2xH100-80GB", noTime)
			healthy := c.Run(t.Context(), inner, ills(inner))
			inner = open(t, "2x2xH100-80GB", noTime)
			failed := c.Run(t.Context(), sees{inner, look}, ills(inner))
			if healthy != nil || failed == nil {
				t.Errorf("%s: a good driver %v, a bad one %v", name, healthy, failed)
			}
		}
	}
}

// shift tells every fault at another time than before.
func shift(inv *driver.Inventory, at time.Time) {
	for i := range inv.Faults {
		inv.Faults[i].At = at.Add(time.Duration(i))
	}
}

// sees is a driver that does not tell what it saw.
type sees struct {
	driver.Driver
	look func(*driver.Inventory)
}

func (s sees) Observe(ctx context.Context) (driver.Inventory, error) {
	inv, err := s.Driver.Observe(ctx)
	s.look(&inv)
	return inv, err
}

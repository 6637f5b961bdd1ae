package host

import (
	"context"
	"maps"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// View is the state as it was at one time, for those who only watch. Nobody changes it,
// so any number of readers share it without a lock. It holds what grows with the
// hardware and the settings, and nothing that grows with the number of tasks that wait
// or have ended: for those there is Watcher.
type View struct {
	At      work.Time
	Hosts   []HostView
	GPUs    []GPUView // by number
	Held    []HeldView
	Pools   []engine.PoolView
	Tenants []TenantView
	Debts   []engine.Debt
	Models  map[string]*gpu.Geometry
	Samples [][]driver.Sample // the newest of each driver
}

// HostView is a host in a View.
type HostView struct {
	Name, Pool string
	Up         bool
}

// GPUView is a GPU in a View.
type GPUView struct {
	ID, Model   string
	Host        int // index into View.Hosts
	Health      gpu.Health
	Mode        gpu.Mode
	Mask        gpu.Mask
	Milli       int         // taken, in thousandths
	Operator    gpu.Verdict // what operators want done with it
	Driver      gpu.Verdict // what its driver does
	First, Held int         // what stands on it is View.Held[First : First+Held]
}

// HeldView is a slice that stands in a View.
type HeldView struct {
	Owner   work.Owner
	Mode    gpu.Mode
	Profile string // mig
	Milli   int
}

// TenantView is a tenant in a View, without what is secret.
type TenantView struct {
	Name                     string
	HeldMilli                int
	LimitGPUs, GuaranteeGPUs float64
}

// publishEvery is how often a View is made at most.
const publishEvery = time.Second

// View is the newest published state: at most about a second old while the host runs.
func (h *Host) View() *View { return h.view.Load() }

// publish makes a new View every second in which something has changed. Making one takes
// the lock for a copy of the hardware: a millisecond or two for 10,000 GPUs.
func (h *Host) publish(ctx context.Context) {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	seen := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n := h.changes.Load(); n != seen {
			seen = n
			h.look()
		}
	}
}

// look makes a View and hands it out.
func (h *Host) look() {
	v := h.takeView()
	h.view.Store(v)
	if h.cfg.Watch != nil {
		h.cfg.Watch.Published(v)
	}
}

func (h *Host) takeView() *View {
	old := h.view.Load()
	if old == nil {
		old = &View{}
	}
	v := &View{ // allocated before the lock is taken
		GPUs: make([]GPUView, 0, len(old.GPUs)+64), Held: make([]HeldView, 0, len(old.Held)+len(old.Held)/8+64),
		Hosts: make([]HostView, 0, len(old.Hosts)+8), Models: map[string]*gpu.Geometry{},
	}
	h.mu.Lock()
	v.copy(h.writer.Engine)
	h.mu.Unlock()
	h.usage.mu.Lock()
	for _, s := range h.usage.samples { // order: each is of another driver, and they are added up
		v.Samples = append(v.Samples, s)
	}
	h.usage.mu.Unlock()
	return v
}

func (v *View) copy(e *engine.Engine) {
	v.At, v.Pools, v.Debts = e.Now(), e.Pools(), e.Debts()
	for i := range v.Pools {
		v.Pools[i].Tenants = maps.Clone(v.Pools[i].Tenants) // the engine's own may change
	}
	for _, h := range e.Hosts() {
		v.Hosts = append(v.Hosts, HostView{h.Info.Name, h.Pool, h.Up && !h.Cordoned})
	}
	for _, g := range e.GPUs() {
		if v.Models[g.Model] == nil {
			v.Models[g.Model] = e.Cluster().Geometry(g.Number)
		}
		x := GPUView{ID: g.ID, Model: g.Model, Host: g.Host, Health: g.Health, Mode: g.Mode, Mask: g.Mask, Milli: g.Milli, First: len(v.Held), Held: len(g.Held)}
		if g.Health.Out() {
			x.Operator, x.Driver = e.VerdictsOn(g.Number)
		}
		v.GPUs = append(v.GPUs, x)
		for i := range g.Held {
			x := &g.Held[i]
			v.Held = append(v.Held, HeldView{x.Owner, x.Slice.Mode, x.Slice.Profile, x.Slice.Milli})
		}
	}
	for _, t := range e.Tenants() {
		v.Tenants = append(v.Tenants, TenantView{t.Name, e.HeldMilli(t.Name), t.LimitGPUs, t.GuaranteeGPUs})
	}
}

package nvidia

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Observe implements driver.Driver.
func (d *Driver) Observe(ctx context.Context) (driver.Inventory, error) {
	if err := d.enter(ctx, ""); err != nil {
		return driver.Inventory{}, err
	}
	got, err := d.lib.call(ctx, request{Op: opEvents})
	if err == nil {
		err = d.hear(got.Events, time.Now())
	}
	if err != nil && ctx.Err() == nil {
		d.o.Log.Warn("the driver's reports are not known", "err", err)
	}
	var all sync.WaitGroup
	for _, k := range d.hostGPUs() {
		if c := d.card(k.UUID); !c.absent {
			all.Go(func() { d.watch(ctx, c) })
		}
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return driver.Inventory{}, err
	}
	return d.inventory(time.Now())
}

func (d *Driver) hostGPUs() []known {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.host.GPUs)
}

// watch looks at one GPU, and keeps what was seen. A call that hangs takes the helper
// down, so a GPU that does not answer is left alone for a while.
func (d *Driver) watch(ctx context.Context, c *card) {
	release, err := d.locks.take(ctx, c.UUID)
	if err != nil {
		return
	}
	defer release()
	if time.Now().Before(c.retry) {
		return
	}
	l, err := d.look(ctx, c)
	if ctx.Err() != nil {
		return
	}
	why := ""
	if err == nil {
		why = d.tend(ctx, c, l)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	switch {
	case err != nil:
		c.fault = err.Error()
		if c.failed++; isFault(err, nvmlGPULost) {
			c.failed = max(c.failed, looksFailed)
		}
		if c.failed >= looksFailed && !isFault(err, nvmlGPULost) { // an answer costs nothing
			c.retry = now.Add(retryAfter)
		}
	default:
		c.failed, c.fault, c.retry, c.last, c.odd = 0, "", time.Time{}, l, why
		switch {
		case l.Clocks&hotBits == 0:
			c.hotSince = time.Time{}
		case c.hotSince.IsZero():
			c.hotSince = now
		}
	}
}

// tend drops parts whose instances are gone, keeps the MPS daemon of shares alive, and
// says what is odd about the GPU. Its lock is held.
func (d *Driver) tend(ctx context.Context, c *card, l *look) (odd string) {
	id := c.UUID
	for _, r := range d.recordsOn(id) {
		if r.Why != "" {
			odd = fmt.Sprintf("unclear state: %s: %s", r.Owner, r.Why)
		}
		if r.State != standing || len(r.on()) > 1 || !r.anyMIG() || slices.ContainsFunc(r.Slices, func(p piece) bool { return r.find(&p, l) != nil }) {
			continue
		}
		d.o.Log.Warn("the instances of a part are gone", "part", r.Owner.String(), "gpu", id)
		if err := d.forget(r.Owner); err != nil {
			d.o.Log.Error("a part that is gone cannot be forgotten", "part", r.Owner.String(), "err", err)
		}
	}
	if d.sharers(id, work.Owner{}) > 0 {
		if err := d.mps.start(ctx, id); err != nil {
			d.o.Log.Error("the MPS daemon of a shared GPU does not run", "gpu", id, "err", err)
			odd = "its MPS daemon does not run: " + err.Error()
		}
	}
	if foreign := d.foreign(c, l); len(foreign) > 0 && odd == "" {
		odd = fmt.Sprintf("it has MIG instances that gpupool did not make (%d at %d, and in all %d)", foreign[0].ID, foreign[0].Start, len(foreign))
	}
	if len(l.Procs) > 0 && odd == "" && d.users(id) == 0 {
		odd = fmt.Sprintf("%d processes that gpupool did not start use it (%s)", len(l.Procs), pids(l.Procs))
	}
	return odd
}

func (d *Driver) recordsOn(id string) (out []*record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.parts {
		if slices.Contains(r.on(), id) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *record) int { return byOwner(a.Owner, b.Owner) })
	return out
}

func byOwner(a, b work.Owner) int {
	return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Epoch, b.Epoch), a.Member-b.Member)
}

// inventory puts together what was seen.
func (d *Driver) inventory(now time.Time) (driver.Inventory, error) {
	d.mu.Lock()
	inv := driver.Inventory{}
	h := gpu.HostInfo{Name: d.host.Name, Driver: "nvidia", CPUMilli: d.host.CPUMilli, MemMiB: d.host.MemMiB}
	if d.mps.on() {
		h.Sharing = gpu.SharingMPS
	}
	verdicts := map[string]ailment{}
	var sick string // what ails the whole machine
	ended := false
	for _, k := range d.host.GPUs {
		c := d.cards[k.UUID]
		h.GPUs = append(h.GPUs, gpu.GPUInfo{ID: k.UUID, Model: c.Model.Key})
		if !slices.ContainsFunc(inv.Models, func(m gpu.Model) bool { return m.Key == c.Model.Key }) {
			inv.Models = append(inv.Models, d.modelNamed(c.Model.Key))
		}
		a, over := d.judge(c, now)
		if c.odd != "" {
			a.worse(gpu.VerdictCordon, c.odd, "")
		}
		if over {
			delete(d.health.Ails, k.UUID)
			ended = true
		}
		if a.host {
			sick = fmt.Sprintf("GPU %d of this machine: %s", c.at.Index, a.Why)
		}
		verdicts[k.UUID] = a
	}
	for _, k := range d.host.GPUs {
		a := verdicts[k.UUID]
		if sick != "" {
			a.worse(gpu.VerdictCordon, sick, "reboot the machine")
		}
		if a.Do != gpu.VerdictNone {
			inv.Verdicts = append(inv.Verdicts, a.Verdict)
		}
		for _, f := range d.health.faults[k.UUID] {
			if now.Sub(f.At) < faultsFor {
				inv.Faults = append(inv.Faults, f)
			}
		}
	}
	inv.Hosts = []gpu.HostInfo{h}
	for o, r := range d.parts {
		inv.Parts = append(inv.Parts, driver.Seen{Host: r.Host, Owner: o})
	}
	d.mu.Unlock()
	slices.SortFunc(inv.Parts, func(a, b driver.Seen) int { return byOwner(a.Owner, b.Owner) })
	if ended {
		return inv, d.saveHealth()
	}
	return inv, nil
}

// modelNamed gives the model of a key, of a GPU whose geometry is the driver's own if
// there is one. d.mu is held.
func (d *Driver) modelNamed(key string) (m gpu.Model) {
	for _, k := range d.host.GPUs {
		if c := d.cards[k.UUID]; c.Model.Key == key && (m.Key == "" || c.Settled && c.why == "") {
			m = c.Model
			if c.Settled && c.why == "" {
				break
			}
		}
	}
	return m
}

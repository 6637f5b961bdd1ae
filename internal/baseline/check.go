package baseline

import (
	"fmt"
	"slices"
)

// Check works out from the list of placements alone what every host has free, what is allocated and what every known
// task scores, and reports the first difference from what the cluster keeps. It is for tests: it costs a pass over all
// placements and one computed score per distinct task and host.
func (c *Cluster) Check() error {
	want := make([]host, len(c.hosts))
	for i, h := range c.hosts {
		want[i] = host{Host: h.Host, at: h.at, cpu: h.CPUMilli, mem: h.MemMiB, left: milliGPU * h.GPUs,
			free: slices.Repeat([]int{milliGPU}, h.GPUs), kinds: make([]bool, h.GPUs+1)}
	}
	milli := int64(0)
	for n, p := range c.placed {
		if err := want[p.host].replay(p); err != nil {
			return fmt.Errorf("placement %d, on host %d: %w", n, want[p.host].at, err)
		}
		milli += int64(p.task.milli())
	}
	if milli != c.milli {
		return fmt.Errorf("allocated: kept %d, placements add up to %d", c.milli, milli)
	}
	for i := range c.hosts {
		h, w := &c.hosts[i], &want[i]
		if h.cpu != w.cpu || h.mem != w.mem || h.left != w.left || !slices.Equal(h.free, w.free) || !slices.Equal(h.kinds, w.kinds) {
			return fmt.Errorf("host %d: kept %+v, placements give %+v", h.at, *h, *w)
		}
	}
	// order: any wrong class is an error
	for _, k := range c.classes {
		c.refresh(k)
		if err := c.checkScores(k, want); err != nil {
			return fmt.Errorf("task %+v, %w", k.task, err)
		}
	}
	return nil
}

// replay places a task again, and reports what it took that was not there.
func (h *host) replay(p placement) error {
	t := p.task
	if len(p.gpus) != t.GPUs {
		return fmt.Errorf("got %d GPUs, asked for %d", len(p.gpus), t.GPUs)
	}
	if t.GPUs > 0 && !t.accepts(h.Model) {
		return fmt.Errorf("got a %q, asked for %q", h.Model, t.Models)
	}
	for i, g := range p.gpus {
		if g < 0 || g >= len(h.free) || slices.Contains(p.gpus[:i], g) {
			return fmt.Errorf("got GPUs %v of %d", p.gpus, len(h.free))
		}
		h.free[g] -= t.Milli
		h.left -= t.Milli
		if h.free[g] < 0 {
			return fmt.Errorf("GPU %d is %d thousandths over its size", g, -h.free[g])
		}
	}
	if t.GPUs > 0 {
		h.kinds[t.kind()] = true
	}
	if h.cpu, h.mem = h.cpu-t.CPUMilli, h.mem-t.MemMiB; h.cpu < 0 || h.mem < 0 {
		return fmt.Errorf("%d thousandths of a core and %d MiB left", h.cpu, h.mem)
	}
	return nil
}

func (c *Cluster) checkScores(k *class, hosts []host) error {
	for i := range hosts {
		want := noFit
		if hosts[i].fits(&k.task) {
			want = c.policy.score(&hosts[i], &k.task)
		}
		if k.score[i] != want {
			return fmt.Errorf("host %d: kept score %d, wanted %d", hosts[i].at, k.score[i], want)
		}
	}
	return nil
}

package config

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// WorkPools are the pools in core words, with what they leave out filled in.
func (c Config) WorkPools() []work.Pool {
	pools := c.Pools
	if len(pools) == 0 {
		pools = []Pool{{Name: DefaultPool, Mode: string(work.Dynamic)}}
	}
	var out []work.Pool
	for _, p := range pools {
		out = append(out, c.workPool(p))
	}
	return out
}

func (c Config) workPool(p Pool) work.Pool {
	q := c.Queue
	weight := or(p.PriorityWeight, q.PriorityWeight)
	out := work.Pool{
		Name: p.Name, Hosts: p.Hosts, Mode: work.PoolMode(p.Mode), TTL: time.Duration(q.TTL),
		Weight: &weight, Capacity: or(p.Capacity, q.Capacity), BackPressure: float64(or(p.BackPressure, q.BackPressure)), AskAt: or(p.AskForMore, q.AskForMore),
		BorrowFrom: p.BorrowFrom, ReserveGPUs: p.ReserveGPUs, LendGPUs: p.LendGPUs, MinRuntime: time.Duration(q.MinRuntime), PreemptPerHour: q.Preemptions,
	}
	if p.TTL != 0 {
		out.TTL = time.Duration(p.TTL)
	}
	out.Elastic = c.Elastic.pool()
	out.Elastic.Smallest, out.Elastic.Largest = thousandths(c.Allocation.Smallest), thousandths(c.Allocation.Largest)
	if q.ScaleOut.Any() {
		out.ScaleOutEvery = time.Duration(q.ScaleOut.Cooldown)
	}
	return out
}

// thousandths of a GPU that a fraction is, which was checked before.
func thousandths(fraction string) int {
	r, err := work.ParseGPUs(fraction)
	if err != nil {
		return 0
	}
	return r.Milli + 1000*r.GPUs
}

// or is what was given, or else x.
func or[T any](given *T, x T) T {
	if given != nil {
		return *given
	}
	return x
}

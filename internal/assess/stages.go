package assess

import (
	"slices"
	"time"
)

// stage is a means and how many it is used for.
type stage struct {
	add        func(*means)
	under      means
	name, what string
}

func stages() []stage {
	return []stage{
		{nil, means{}, "held now", "GPUs that anyone holds: the rest is returned, and who comes when all are held waits in line"},
		{func(m *means) { m.park = true }, means{park: true}, "parking", "and what idles is suspended, and its GPUs lent, until it is used again"},
		{func(m *means) { m.slice = true }, means{slice: true}, "slices", "and who needs little gets a MIG slice in place of a GPU"},
		{func(m *means) { m.share = true }, means{share: true}, "sharing", "and up to four that need little, of one namespace, share a GPU"},
	}
}

// needs finds how many GPUs were needed by each means and those before it. A means that
// would need more is left out.
func (x *Result) needs(pools []*pool, o Options) {
	x.Means = []Means{{Name: "installed", What: "GPUs that were seen", Soon: Needed{P99: x.GPUs, Most: x.GPUs, Mean: float64(x.GPUs)}, Cautious: Needed{P99: x.GPUs, Most: x.GPUs, Mean: float64(x.GPUs)}}}
	for _, s := range stages() {
		x.Means = append(x.Means, Means{Name: s.name, What: s.what})
	}
	covered := x.record.covered()
	for _, p := range pools {
		for _, cautious := range []bool{false, true} {
			m := means{}
			if cautious {
				m.after = o.IdleAfter
			}
			x.chain(p, m, covered, cautious)
		}
	}
	x.parking(pools)
}

func (x *Result) chain(p *pool, m means, covered []bool, cautious bool) {
	var best needs
	under := map[means]int{}
	for i, s := range stages() {
		if s.add == nil {
			best, _ = x.record.needed(p, m, covered)
		} else {
			try := m
			s.add(&try)
			if n, by := x.record.needed(p, try, covered); n.better(best) {
				best, m, under = n, try, by
			}
		}
		into := &x.Means[i+1].Soon
		if cautious {
			into = &x.Means[i+1].Cautious
		}
		into.P99 += best.quantile(0.99)
		into.Most += best.max()
		into.Mean += best.mean()
		into.Pods += under[s.under]
		into.over = added(into.over, best.most)
	}
}

func added(to, more []int32) []int32 {
	if to == nil {
		return slices.Clone(more)
	}
	for i, n := range more {
		to[i] += n
	}
	return to
}

// parking is what the shadow of gpupool would have said.
func (x *Result) parking(pools []*pool) {
	park := Parking{}
	var resume time.Duration
	for _, p := range pools {
		e := x.record.tally(p, means{park: true})
		park.GPUs += e.GPUs
		park.Parks += e.Parks
		park.Wakes += e.Wakes
		for _, c := range p.claims {
			for _, a := range x.record.parked(c, means{park: true}) {
				if a.wakes {
					resume += c.price.Resume
				}
			}
		}
	}
	if park.Parks == 0 {
		return
	}
	park.Wait = (resume / time.Duration(max(park.Wakes, 1))).Round(100 * time.Millisecond).String()
	x.Parking = &park
}

package placement

import (
	"cmp"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// bundle is GPUs of a bay that tasks hold together: freeing one means freeing all.
type bundle struct {
	gpus   int
	owners []work.Owner
}

// bundles groups the usable GPUs of a bay that are not free by the tasks on them.
func (x *reclaiming) bundles(b *bay) (free int, out []bundle) {
	for _, n := range b.gpus {
		g := x.c.GPUs[n]
		if !g.sound() {
			continue
		}
		if g.Mode == gpu.ModeFree {
			free++
			continue
		}
		if last := len(out) - 1; last >= 0 && len(g.Held) == 1 && len(out[last].owners) == 1 && out[last].owners[0] == task(g.Held[0].Owner) {
			out[last].gpus++ // the usual case: GPUs of one task side by side
			continue
		}
		u := bundle{gpus: 1}
		for i := range g.Held {
			u.owners = append(u.owners, x.meet(g.Held[i].Holder))
		}
		out = slices.DeleteFunc(out, func(o bundle) bool {
			if !slices.ContainsFunc(o.owners, func(w work.Owner) bool { return slices.Contains(u.owners, w) }) {
				return false
			}
			u.gpus += o.gpus
			u.owners = append(u.owners, o.owners...)
			return true
		})
		out = append(out, u)
	}
	return free, out
}

// wholeGPUs finds the cheapest tasks of a bay whose leaving frees so many GPUs: a
// knapsack over bundles, exact, as a bay has 64 GPUs at most.
func (x *reclaiming) wholeGPUs(b *bay, gpus int) (bill, bool) {
	free, all := x.bundles(b)
	need := gpus - free
	if need <= 0 {
		return bill{}, true // only CPU or memory is short
	}
	type way struct {
		bill
		ok bool
	}
	best := make([]way, need+1) // [n] the cheapest way to free n GPUs or more
	best[0].ok = true
	for _, u := range all {
		one, can := x.price(u.owners)
		if !can {
			continue
		}
		for n := need; n > 0; n-- {
			from := &best[max(n-u.gpus, 0)]
			lost, tasks := from.lost+one.lost, len(from.tasks)+len(one.tasks)
			if from.ok && (!best[n].ok || lost < best[n].lost || lost == best[n].lost && tasks < len(best[n].tasks)) {
				best[n] = way{bill{slices.Concat(from.tasks, one.tasks), lost}, true}
			}
		}
	}
	if !best[need].ok {
		return bill{}, false
	}
	return x.price(best[need].tasks) // the budgets of tenants hold for all together
}

// feed adds the cheapest tasks of a host until its CPU and memory are enough too.
func (x *reclaiming) feed(h *Host, b bill, need amount) (bill, bool) {
	has := h.left()
	gain := func(o work.Owner) {
		for _, part := range x.claims[o].Parts {
			if part.Host == h.Number {
				has.cpu += part.CPUMilli
				has.mem += part.MemMiB
			}
		}
	}
	for _, o := range b.tasks {
		gain(o)
	}
	if has.covers(need) {
		return b, true
	}
	var others []work.Owner
	for _, n := range h.GPUs {
		for _, w := range x.c.GPUs[n].Held {
			o := x.meet(w.Holder)
			if x.claims[o].ok && !slices.Contains(b.tasks, o) && !slices.Contains(others, o) {
				others = append(others, o)
			}
		}
	}
	slices.SortStableFunc(others, func(p, q work.Owner) int { return cmp.Compare(x.claims[p].Lost, x.claims[q].Lost) })
	for _, o := range others {
		if has.covers(need) {
			break
		}
		b.tasks = append(slices.Clone(b.tasks), o)
		gain(o)
	}
	if !has.covers(need) {
		return b, false
	}
	return x.price(b.tasks)
}

package assess

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
)

// crowd is what is held of a pool at one moment.
type crowd struct {
	pool   *pool
	single int         // whole GPUs, one each
	multi  map[int]int // holders of several whole GPUs, which stay in one host, by how many
	slices []int       // by profile
	shares map[string][]*claim
	bins   map[string]int // GPUs that the shares of a namespace take; absent = to be found
	binned int
}

func newCrowd(p *pool) *crowd {
	c := &crowd{pool: p, multi: map[int]int{}, shares: map[string][]*claim{}, bins: map[string]int{}}
	if p.geo != nil {
		c.slices = make([]int, len(p.geo.Model.Profiles))
	}
	return c
}

// need is the fewest GPUs that this crowd was found a place on: by first fit, the
// largest first, so a cleverer packing may do with less.
func (c *crowd) need() int {
	for namespace, claims := range c.shares { // order: a sum
		if _, ok := c.bins[namespace]; !ok {
			c.bins[namespace] = c.pool.bins(claims)
			c.binned += c.bins[namespace]
		}
	}
	wholes, left := c.hosts()
	others := c.single + c.pool.grid(c.slices) + c.binned
	return wholes + max(others, left)
}

// dirty forgets what was found for a namespace.
func (c *crowd) dirty(namespace string) {
	c.binned -= c.bins[namespace]
	delete(c.bins, namespace)
}

// hosts is how many GPUs the holders of several take, and how many beside them in their
// hosts are no use to such a holder; those of the last host are not counted, as it may
// be a smaller one.
func (c *crowd) hosts() (taken, left int) {
	var sizes []int
	for size, n := range c.multi { // order: sorted below
		for range n {
			sizes = append(sizes, size)
		}
		taken += size * n
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	var hosts []int // what is free of each
	for _, size := range sizes {
		at := slices.IndexFunc(hosts, func(free int) bool { return free >= size })
		if at < 0 {
			// A pod larger than the most common host was on a larger one.
			hosts = append(hosts, max(c.pool.host, size))
			at = len(hosts) - 1
		}
		hosts[at] -= size
	}
	for _, free := range hosts {
		left += free
	}
	if len(hosts) > 0 {
		left -= slices.Max(hosts)
	}
	return taken, left
}

// bins is how many GPUs the shares of one namespace take: four on one at most.
func (p *pool) bins(claims []*claim) int {
	type bin struct {
		n, milli int
		mem      int64
	}
	var bins []bin
	sorted := slices.Clone(claims)
	slices.SortStableFunc(sorted, func(a, b *claim) int {
		return max(b.milli*16, int(16000*b.memMiB/max(p.memMiB, 1))) - max(a.milli*16, int(16000*a.memMiB/max(p.memMiB, 1)))
	})
	for _, x := range sorted {
		at := slices.IndexFunc(bins, func(b bin) bool { return b.n < sharers && b.milli+x.milli <= 1000 && b.mem+x.memMiB <= p.memMiB })
		if at < 0 {
			bins = append(bins, bin{})
			at = len(bins) - 1
		}
		bins[at].n++
		bins[at].milli += x.milli
		bins[at].mem += x.memMiB
	}
	return len(bins)
}

// grid is how many GPUs so many slices of each profile take, by the real geometry.
func (p *pool) grid(counts []int) int {
	if p.geo == nil || !slices.ContainsFunc(counts, func(n int) bool { return n > 0 }) {
		return 0
	}
	key := fmt.Sprint(counts)
	n, known := p.grids[key]
	if !known {
		n = len(carve(p.geo, counts))
		p.grids[key] = n
	}
	return n
}

// carve places slices, the largest first, each on the first GPU that takes it, where it
// leaves the most room.
func carve(g *gpu.Geometry, counts []int) (boards [][]gpu.Placed) {
	order := make([]int, len(counts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := g.Model.Profiles[a], g.Model.Profiles[b]
		return (y.Units*100 + y.Compute) - (x.Units*100 + x.Compute)
	})
	var taken []gpu.Mask
	for _, i := range order {
		profile := g.Model.Profiles[i]
		from := 0 // the boards before it have no room for this profile
		for range counts[i] {
			for from < len(taken) && (g.Starts(i, taken[from]) == 0 || count(boards[from], profile.Name) >= profile.Max) {
				from++
			}
			if from == len(taken) {
				taken, boards = append(taken, 0), append(boards, nil)
			}
			start := roomiest(g, i, taken[from])
			taken[from] |= profile.Mask(start)
			boards[from] = append(boards[from], gpu.Placed{Profile: profile.Name, Start: start})
		}
	}
	return boards
}

func count(on []gpu.Placed, profile string) (n int) {
	for _, x := range on {
		if x.Profile == profile {
			n++
		}
	}
	return n
}

// roomiest is the legal start that leaves the most room.
func roomiest(g *gpu.Geometry, profile int, taken gpu.Mask) int {
	best, room := -1, -1
	for starts := g.Starts(profile, taken); starts != 0; starts &= starts - 1 {
		at := bits.TrailingZeros16(uint16(starts))
		if left := g.Room(taken | g.Model.Profiles[profile].Mask(at)); left > room {
			best, room = at, left
		}
	}
	return best
}

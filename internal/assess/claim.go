package assess

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/gpu"
)

// pool is the GPUs of one model: work is not moved to another.
type pool struct {
	name   string
	geo    *gpu.Geometry // nil = without MIG, or not known
	memMiB int64         // of a GPU; 0 = not known
	boards int
	host   int // GPUs of a host, of the most common kind
	claims []*claim
	grids  map[string]int // GPUs that slices take, by how many of each profile
}

// claim is what a pod held of a pool.
type claim struct {
	pod       *pod // nil = whoever used a GPU that nobody held
	namespace string
	parts     []part
	price     elastic.Price
	instances bool // stands for the MIG instances of a GPU, together
	instance  int  // is one of them: its profile; -1 = it is not
	slice     int  // profile that it fits in; -1 = none
	milli     int  // of a GPU that it takes as a share; 0 = it is not one to share
	memMiB    int64
}

// part is steps in a row in which a claim was the same.
type part struct {
	from, to int32
	gpus     int32
	state    state
}

// Of what becomes smaller, as in docs/elastic.md: use stays under the spare mark, and
// there is a quarter more memory than was ever seen.
const (
	memoryRoom = 1.25
	sharers    = 4
	measured   = 0.9       // of the time that a pod held must be known to judge it
	shortest   = time.Hour // that a pod must have been measured
)

// pools sorts what was recorded by model and by holder.
func (r *record) pools(spare float64) []*pool {
	b := builder{record: r, spare: spare, of: map[string]*pool{}, claims: map[claimKey]*claim{}, spans: map[*claim][]span{}}
	hosts := map[*pool]map[string]int{}
	for _, x := range r.boards {
		p := b.pool(x)
		p.boards++
		p.memMiB = max(p.memMiB, int64(x.memMiB))
		if hosts[p] == nil {
			hosts[p] = map[string]int{}
		}
		hosts[p][x.host]++
	}
	for i := range r.devices {
		b.device(i)
	}
	for _, p := range b.list {
		p.host = commonest(hosts[p])
		for _, c := range p.claims {
			b.finish(p, c)
		}
	}
	return b.list
}

// commonest is how many GPUs a host has, of the most common kind.
func commonest(hosts map[string]int) int {
	kinds := map[int]int{}
	for name, n := range hosts { // order: a count
		if name != "" {
			kinds[n]++
		}
	}
	best := 0
	for n, count := range kinds { // order: the larger of equals wins
		if best == 0 || count > kinds[best] || count == kinds[best] && n > best {
			best = n
		}
	}
	return max(best, 1)
}

type builder struct {
	*record
	spare  float64
	list   []*pool
	of     map[string]*pool
	claims map[claimKey]*claim
	spans  map[*claim][]span
}

// claimKey is who holds: a pod, or else what is told apart by device.
type claimKey struct {
	pool   *pool
	pod    int32
	device int // -1 = any
	all    bool
}

func (b *builder) pool(x *board) *pool {
	x.kind = modelOf(b.models, x.model, x.memMiB)
	name := cmp.Or(x.model, "model not known")
	if x.kind != nil {
		name = x.kind.Key
	}
	p := b.of[name]
	if p == nil {
		p = &pool{name: name, grids: map[string]int{}}
		if x.kind != nil && x.kind.HasMIG() {
			p.geo = gpu.NewGeometry(*x.kind)
		}
		b.of[name] = p
		b.list = append(b.list, p)
	}
	return p
}

// device hands the spans of a device to those who held it.
func (b *builder) device(i int) {
	d := b.devices[i]
	board := b.boards[d.board]
	p := b.pool(board)
	profile := -1
	if d.instance != "" && p.geo != nil {
		profile = p.geo.Index(d.profile)
	}
	for _, s := range d.spans {
		if s.state == free || s.state == dark {
			continue
		}
		k := claimKey{p, s.pod, -1, false}
		if d.instance != "" || s.pod < 0 {
			k.device = i
		}
		b.add(k, s, profile)
		if d.instance != "" {
			b.add(claimKey{p, -2, d.board, true}, s, -1)
		}
	}
}

func (b *builder) add(k claimKey, s span, profile int) {
	c := b.claims[k]
	if c == nil {
		c = &claim{instance: profile, slice: -1, instances: k.all}
		if k.pod >= 0 {
			c.pod = b.pods[k.pod]
			c.namespace = c.pod.namespace
		}
		b.claims[k] = c
		k.pool.claims = append(k.pool.claims, c)
	}
	b.spans[c] = append(b.spans[c], s)
}

// finish makes a time line of the spans of a claim, and says what it would fit in.
func (b *builder) finish(p *pool, c *claim) {
	c.parts = timeline(b.spans[c])
	delete(b.spans, c)
	if c.instances || c.pod == nil {
		for i := range c.parts {
			if c.instances {
				c.parts[i].gpus = 1
			}
		}
		return
	}
	u := &c.pod.use
	mem := p.memMiB // what is not known is taken to be all of it
	if u.memMiB >= 0 {
		mem = int64(u.memMiB)
	}
	c.price = elastic.ParkPrice(mem)
	held, most := 0, int32(0)
	for _, x := range c.parts {
		held += int(x.to-x.from) * int(x.gpus)
		most = max(most, x.gpus)
	}
	if c.instance >= 0 || most != 1 || u.memMiB < 0 || float64(u.known) < measured*float64(held) || b.time(u.known) < shortest {
		return
	}
	milli := int(1000*u.p95()/b.spare + 0.999)
	c.memMiB = int64(memoryRoom*u.memMiB + 0.999)
	if p.geo != nil {
		if i := p.geo.Model.Smallest(max(milli, 1), c.memMiB); i >= 0 && p.geo.Model.Profiles[i].Compute < p.geo.Model.Slices {
			c.slice = i
		}
	}
	if milli <= 500 && 2*c.memMiB <= p.memMiB {
		c.milli = max(milli, 1)
	}
}

// timeline adds up the spans of a claim, which may have several devices: it is idle
// when all of them are.
func timeline(spans []span) []part {
	type edge struct {
		at   int32
		by   int32
		what state
	}
	edges := make([]edge, 0, 2*len(spans))
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1, s.state}, edge{s.to, -1, s.state})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	var out []part
	var n [blind + 1]int32
	for i, e := range edges {
		n[e.what] += e.by
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		all := n[idle] + n[busy] + n[blind] + n[stray]
		if i+1 == len(edges) || all == 0 {
			continue
		}
		x := part{e.at, edges[i+1].at, all, busy}
		switch {
		case n[busy]+n[stray] > 0:
		case n[blind] > 0:
			x.state = blind
		default:
			x.state = idle
		}
		if k := len(out); k > 0 && out[k-1].to == x.from && out[k-1].gpus == x.gpus && out[k-1].state == x.state {
			out[k-1].to = x.to
			continue
		}
		out = append(out, x)
	}
	return out
}

// short makes idle times that are shorter than what counts as idle busy.
func (r *record) short(least int) {
	for _, d := range r.devices {
		var out []span
		for _, s := range d.spans {
			if s.state == idle && int(s.to-s.from) < least {
				s.state = busy
			}
			out = joined(out, s)
		}
		d.spans = out
	}
}

package placement

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// The score of a placement is how much the loss of its host grows, in thousandths
// of GPUs times members expected. With the classes c that are expected, w(c) members
// of each, the loss of a host is
//
//	Σ w(c)·(idle(h) − usable(c,h))                     what c cannot use of what is idle,
//	+ Σ w(c)·max(0, room(c,h) − fed(c,h))              what c could use but cannot feed,
//	+ 3·Σw·max(0, idle(h) − fed(all,h))                and what the mean request cannot feed,
//	− 0.8·Σw'·idle(h)²/2·size(h)                       less what it is worth as a whole:
//
// where size is all of the host's GPUs and idle what is not taken of them; usable is
// what is idle on GPUs where a member of c fits (of free GPUs, what whole multiples of
// c's GPUs cover); room is how much members of c take if as many as fit are put
// there; fed is how much GPU the CPU and memory left on the host are enough for. The
// first sum is the fragmentation of Weng et al. (FGD, USENIX ATC '23) without tasks
// that need no GPU; the rest is ours. An idle rest r, too little for something of
// size s, is not all lost, as its neighbours end some day: r²/2s of it counts as
// usable, of a GPU as of a group of GPUs. Scarce models are dearer by a tenth of their
// share of restricted demand. Classes that MIG can serve count the loss of a cut GPU by
// the placements it still allows instead (lossMIG); w' is the weight of those that ask
// for whole GPUs. docs/placement.md says what each term is worth.

// view is what a pool expects, seen on GPUs of one model.
type view struct {
	forms  []form   // by class
	whole  []int64  // [n] loss of n free GPUs of a host
	mig    []int64  // [state] loss of a cut GPU
	share  []int64  // [idle thousandths] loss of a shared GPU
	idle   []int64  // [state] what is not taken of a cut GPU
	starts [][]int8 // [profile][state] where it is cut, once it was asked
	scarce float64  // added to the score for each thousandth taken
}

// form is how a class is served by a model.
type form struct {
	can   bool
	mig   int // profile, or -1
	milli int // of the profile
	share int // thousandths, or 0
	free  int // thousandths that members take of a free GPU at most
}

// rest is how much of what is idle is lost to those who need more, of a GPU or a
// group of GPUs of some size. Not all: what stands beside it ends some day, and the
// more is idle, the likelier soon.
func rest(idle, size int64) int64 { return idle - idle*idle/(2*size) }

// prior is the weight of one whole GPU that is always expected: a free GPU is not
// cut while a cut one has room.
const prior = 1

// prepare computes the views of a pool's shelves when what is expected, or what
// there is, has changed.
func (c *Cluster) prepare(p *poolIndex) {
	d := &p.demand
	if d.ready {
		return
	}
	for _, m := range p.bySize {
		s := p.shelves[m]
		s.view.forms = s.view.forms[:0]
		for i := range d.Expect {
			s.view.forms = append(s.view.forms, s.formOf(d.Expect[i].Request, c.Sharers))
		}
	}
	cpu, mem := p.supply()
	d.weigh(p.need, cpu, mem)
	for _, m := range p.bySize {
		p.shelves[m].look(d)
	}
	p.scarcity()
	d.whole = c.tightness(p)
	d.ready = true
}

// need is how much of a GPU a member of a class takes, in thousandths: where models
// serve it differently the most.
func (p *poolIndex) need(class int) int {
	n := p.demand.Expect[class].Request.GPUs * 1000
	for _, m := range p.bySize {
		f := &p.shelves[m].view.forms[class]
		n = max(n, f.milli, f.share)
	}
	return max(n, 1)
}

// supply is the least CPU and memory that a usable host of the pool has for each
// thousandth of its GPUs.
func (p *poolIndex) supply() (cpu, mem float64) {
	cpu, mem = math.Inf(1), math.Inf(1)
	for _, s := range p.shapes {
		gpus := 0
		for _, n := range s.counts {
			gpus += n * 1000
		}
		if s.up > 0 && gpus > 0 {
			cpu, mem = min(cpu, float64(s.cpu)/float64(gpus)), min(mem, float64(s.mem)/float64(gpus))
		}
	}
	return cpu, mem
}

// look computes a shelf's view.
func (s *shelf) look(d *demand) {
	v := &s.view
	v.whole = v.whole[:0]
	for n := range work.MaxGPUsPerMember + 1 {
		loss := int64(0)
		for i, f := range v.forms {
			if g := d.class[i].gpus; g > 0 && f.can {
				loss += d.class[i].weight * rest(int64(n%g)*1000, int64(g)*1000)
			}
		}
		v.whole = append(v.whole, loss)
	}
	v.mig, v.idle, v.share, v.starts = v.mig[:0], v.idle[:0], v.share[:0], v.starts[:0]
	if s.geo.Model.HasMIG() {
		for state := range gpu.Mask(1) << s.geo.Model.Units {
			v.mig = append(v.mig, s.lossMIG(d, state))
			v.idle = append(v.idle, s.idleMIG(state))
		}
	}
	for idle := range 1001 {
		v.share = append(v.share, s.lossShare(d, idle))
	}
}

func (s *shelf) formOf(r work.Request, sharers int) form {
	m := s.geo.Model
	f := form{mig: -1, can: serves(m, r)}
	if !f.can || r.GPUs > 0 {
		return f
	}
	fits := r.FitPart(m)
	for i, x := range fits {
		if x.Profile < 0 {
			f.share = max(x.Milli, 1)
			if i == 0 {
				f.free = min(1000/f.share, sharers) * f.share
			}
			continue
		}
		f.mig, f.milli = x.Profile, x.Milli
		if i == 0 {
			f.free = s.geo.Count(x.Profile, 0) * x.Milli
		}
	}
	return f
}

// lossMIG is the loss of a cut GPU: to classes that cannot be cut from it what is
// idle, and to those that can the placements that are no longer possible. Each
// profile that is expected counts once, by how many of it the board had room for and
// has now: of the measures tried this refuses least in streams of MIG requests, and
// weights by demand refuse more (gpupool bench mig).
func (s *shelf) lossMIG(d *demand, state gpu.Mask) int64 {
	lost, weight := int64(prior), int64(0)
	var kinds []int
	for i, f := range s.view.forms {
		switch {
		case !f.can:
		case f.mig < 0:
			lost += d.class[i].weight
		default:
			weight += d.class[i].weight
			if !slices.Contains(kinds, f.mig) {
				kinds = append(kinds, f.mig)
			}
		}
	}
	room := 0 // units
	for _, p := range kinds {
		room += s.geo.Model.Profiles[p].Units * (s.geo.Count(p, 0) - s.geo.Count(p, state))
	}
	loss := lost * rest(s.idleMIG(state), 1000)
	if len(kinds) > 0 {
		loss += int64(room) * 1000 * weight / int64(s.geo.Model.Units*len(kinds))
	}
	return loss
}

// lossShare is the loss of a shared GPU.
func (s *shelf) lossShare(d *demand, idle int) int64 {
	lost := int64(prior)
	for i, f := range s.view.forms {
		if f.can && (f.share == 0 || f.share > idle) {
			lost += d.class[i].weight
		}
	}
	return lost * rest(int64(idle), 1000)
}

// scarcity makes models dearer that more of the restricted demand depends on: the
// demand of each class presses on all models that can serve it, by their supply.
func (p *poolIndex) scarcity() {
	press := make([]float64, len(p.shelves))
	total, all := 0.0, 0.0
	for i := range p.demand.class {
		need := float64(p.demand.Expect[i].Members) * float64(p.need(i))
		supply := 0.0
		for _, s := range p.shelves {
			if s != nil && s.view.forms[i].can {
				supply += float64(s.usable)
			}
		}
		for m, s := range p.shelves {
			if s != nil && s.view.forms[i].can && supply > 0 {
				press[m] += need / supply
			}
		}
		total += need
	}
	least := -1.0
	for m, s := range p.shelves {
		if s != nil && s.usable > 0 {
			all += float64(s.usable)
			if least < 0 || press[m] < least {
				least = press[m]
			}
		}
	}
	for m, s := range p.shelves {
		if s != nil {
			s.view.scarce = 0
			if total > 0 && all > 0 {
				s.view.scarce = max(press[m]-least, 0) / (total / all) / 10 * float64(p.demand.weight)
			}
		}
	}
}

// strandedWeight is the weight of GPUs that the mean request cannot feed. On openb
// anything from 2 to 6 packs about the same, 1 less well.
const strandedWeight = 3

// wholeHosts is the weight, against the whole GPUs that are expected, of keeping
// hosts whole for whoever needs many at once when their tasks have ended. On openb
// from none to this much packs about the same; in replays of ITP's load tasks wait a
// third less than with none.
const wholeHosts = 0.8

// tightness is wholeHosts in the scale of the pool's scores. It fades where CPU runs
// out before GPUs do, as there the fullest hosts are those that cannot feed what is
// left of their GPUs.
func (c *Cluster) tightness(p *poolIndex) float64 {
	cpu, gpus := 0.0, 0.0
	for _, s := range p.shapes {
		for _, n := range s.counts {
			gpus += float64(s.up*n) * 1000
		}
		if len(s.counts) > 0 {
			cpu += float64(s.up) * float64(s.cpu)
		}
	}
	d := &p.demand
	whole := 0.0
	for i := range d.class {
		if d.class[i].gpus > 0 {
			whole += wholeHosts * float64(d.class[i].weight)
		}
	}
	if d.gpus == 0 || cpu == 0 || gpus == 0 {
		return whole
	}
	taken := d.cpu / d.gpus * gpus / cpu // share of the CPU that is taken when all GPUs are
	return whole * min(1, max(0, 4*(1-taken)))
}

// tight is what taking so much of a host adds to the score: a host that is idle to
// a share x is worth x²/2 of it to those who need it whole.
func (d *demand) tight(h *Host, takes int64) int64 {
	if takes == 0 {
		return 0
	}
	idle, t := float64(h.idle), float64(takes)
	return int64(d.whole * (2*idle - t) * t / float64(2*1000*len(h.GPUs)))
}

// state is what stands on one GPU, as a score sees it.
type state struct {
	mode gpu.Mode // free, mig or shared
	mask gpu.Mask
	idle int // thousandths, of a shared one
}

func stateOf(g *GPU) state { return state{g.Mode, g.Mask, 1000 - g.Milli} }

// loss of one GPU that is not free.
func (v *view) loss(x state) int64 {
	switch x.mode {
	case gpu.ModeMIG:
		return v.mig[x.mask]
	case gpu.ModeShared:
		return v.share[max(x.idle, 0)]
	case gpu.ModeFree, gpu.ModeWhole:
	}
	return 0
}

// room is how much members of a class take of one GPU if as many as fit are put
// there, in thousandths. Of free GPUs it counts only classes of parts.
func (s *shelf) room(class int, x state) int64 {
	f := &s.view.forms[class]
	switch x.mode {
	case gpu.ModeFree:
		return int64(f.free)
	case gpu.ModeMIG:
		if f.mig >= 0 {
			return int64(s.geo.Count(f.mig, x.mask) * f.milli)
		}
	case gpu.ModeShared:
		if f.share > 0 {
			return int64(x.idle / f.share * f.share)
		}
	case gpu.ModeWhole:
	}
	return 0
}

// outlook is what a host could still take, by class.
type outlook struct {
	epoch, stamp uint32
	room         []int64 // thousandths that members of a class take if as many as fit are put there
	unfed        int64   // the second and third sum of its loss
}

// outlookOf returns a host's outlook, computing it anew when either has changed.
func (c *Cluster) outlookOf(p *poolIndex, h *Host) *outlook {
	o := &h.outlook
	if o.epoch == p.demand.epoch && o.stamp == h.stamp && o.room != nil {
		return o
	}
	o.epoch, o.stamp = p.demand.epoch, h.stamp
	o.room = append(o.room[:0], make([]int64, len(p.demand.class))...)
	for i := range h.bays {
		b := &h.bays[i]
		s := p.shelves[b.model]
		free := bits.OnesCount64(b.free)
		for k := range o.room {
			if g := p.demand.class[k].gpus; g > 0 && s.view.forms[k].can {
				o.room[k] += int64(free / g * g * 1000)
			} else {
				o.room[k] += int64(free) * int64(s.view.forms[k].free)
			}
		}
		for _, n := range b.gpus {
			g := c.GPUs[n]
			if !g.sound() || g.Mode == gpu.ModeFree || g.Mode == gpu.ModeWhole {
				continue
			}
			for k := range o.room {
				o.room[k] += s.room(k, stateOf(g))
			}
		}
	}
	o.unfed = p.demand.unfed(h.left(), h.idle, o.room, nil)
	return o
}

// unfed is the second and third sum of the loss of a host that has so much left,
// when drop is taken from the room that each class has.
func (d *demand) unfed(left amount, idle int64, room, drop []int64) int64 {
	cpu, mem := float64(left.cpu), float64(left.mem)
	sum := int64(0)
	for k := range d.class {
		x := &d.class[k]
		if !x.hungry {
			continue
		}
		r := room[k]
		if drop != nil {
			r -= drop[k]
		}
		if fed := int64(min(cpu*x.perCPU, mem*x.perMem)); r > fed {
			sum += x.weight * (r - fed)
		}
	}
	if fed := int64(cpu * d.perCPU); idle > fed {
		sum += strandedWeight * d.weight * (idle - fed)
	}
	return sum
}

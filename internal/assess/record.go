package assess

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
)

// state is what a GPU was in a step.
type state uint8

const (
	free  state = iota // nobody held it
	dark               // nobody held it, and nobody measured its use
	stray              // nobody held it, and yet it was used
	idle               // held, and not used
	busy               // held and used
	blind              // held, and nobody measured its use
)

// span is steps in a row of one state, from one pod.
type span struct {
	from, to int32
	pod      int32 // -1 = none
	state    state
}

// reading is what was measured in a step. Shares are of the whole device, 0 to 1, and
// negative when they are not known.
type reading struct {
	mean   float64 // use
	peak   float64 // the most of any sample
	fit    float64 // the most of what a smaller slice would have to do
	memMiB float64
	prof   bool // the use is from a profiling metric
}

// board is a GPU.
type board struct {
	uuid, host, model string
	memMiB            float64    // in all, as measured; 0 = not known
	kind              *gpu.Model // nil = not one of the tables
	cells             []cell
}

// device is a GPU, or a MIG instance of one.
type device struct {
	board    int
	instance string
	profile  string // of a MIG instance
	spans    []span
	use      usage // while nobody held it
	prof     int   // steps read from profiling metrics
	plain    int   // and from others
	shared   int   // steps for which several pods held it
	last     []int // the pods that were listed for it in the step before
}

// pod is who holds GPUs.
type pod struct {
	namespace, name string
	devices         []int
	use             usage
}

// usage is what was measured of a holder.
type usage struct {
	fits   [101]uint32 // while it used its GPU, by per cent
	known  int         // steps, used or not
	memMiB float64     // the most; negative = never measured
}

func (u *usage) add(r reading, idleBelow float64) {
	u.memMiB = max(u.memMiB, r.memMiB)
	if r.peak >= 0 {
		u.known++
	}
	if r.peak >= idleBelow {
		u.fits[percentOf(r.fit)]++
	}
}

// percentOf rounds up: nothing is to look smaller than it is. Readings were kept with seven
// digits, so a little over a whole per cent is that.
func percentOf(share float64) int { return int(math.Ceil(100*min(max(share, 0), 1) - 1e-4)) }

// p95 is the share that 95 % of the readings did not exceed in which it used its GPU: who
// idles nearly always still wants all of it when he does not.
func (u *usage) p95() float64 { return quantile(u.fits[:], 0.95) / 100 }

// quantile is the smallest bin at or below which a share q of the counts are.
func quantile(bins []uint32, q float64) float64 {
	var sum uint64
	for _, n := range bins {
		sum += uint64(n)
	}
	left := int64(math.Ceil(q * float64(sum)))
	for i, n := range bins {
		if left -= int64(n); left <= 0 {
			return float64(i)
		}
	}
	return float64(len(bins) - 1)
}

// cell is a rectangle of the map over time.
type cell struct {
	sum                    float32
	known, idle, none, any uint32
}

// mapCells is how many columns the map over time has at most.
const mapCells = 336

// record is what was read of a site.
type record struct {
	window
	idleBelow float64
	boards    []*board
	devices   []*device
	pods      []*pod
	held      amounts // while someone held it
	unheld    amounts
	models    []gpu.Model
	boardOf   map[string]int
	deviceOf  map[deviceKey]int
	podOf     map[podKey]int
}

// amounts are distributions of use and of memory over the time of all devices, by per cent.
type amounts struct{ use, memory [101]uint32 }

// deviceKey names a device: the GPU and the instance on it.
type deviceKey struct{ gpu, instance string }

// podKey names a holder. Clusters may have pods of the same name.
type podKey struct{ cluster, namespace, name string }

func newRecord(w window, idleBelow float64) *record {
	return &record{window: w, idleBelow: idleBelow, models: gpu.Builtin(), boardOf: map[string]int{}, deviceOf: map[deviceKey]int{}, podOf: map[podKey]int{}}
}

// about is what is said of a device.
type about struct {
	deviceKey
	host, model, profile string
}

// device finds a device, or makes it known.
func (r *record) device(a about) int {
	b, ok := r.boardOf[a.gpu]
	if !ok {
		b = len(r.boards)
		r.boardOf[a.gpu] = b
		r.boards = append(r.boards, &board{uuid: a.gpu, cells: make([]cell, min(r.n, mapCells))})
	}
	x := r.boards[b]
	x.host = cmp.Or(x.host, a.host)
	if x.model == "" && a.model != "" {
		x.model = a.model
		if m := modelOf(r.models, a.model, x.memMiB); m != nil {
			x.memMiB = max(x.memMiB, float64(m.MemoryMiB))
		}
	}
	d, ok := r.deviceOf[a.deviceKey]
	if !ok {
		d = len(r.devices)
		r.deviceOf[a.deviceKey] = d
		r.devices = append(r.devices, &device{board: b, instance: a.instance, profile: a.profile, use: usage{memMiB: -1}})
	}
	return d
}

// pod finds a holder, or makes it known.
func (r *record) pod(k podKey) int {
	p, ok := r.podOf[k]
	if !ok {
		p = len(r.pods)
		r.podOf[k] = p
		r.pods = append(r.pods, &pod{namespace: k.namespace, name: k.name, use: usage{memMiB: -1}})
	}
	return p
}

// choose says which of the pods that were listed for a device in one step had it: the
// one that had it before, as a pod that comes is first seen beside the one that goes.
// Where the same ones are listed again the device is shared.
func (d *device) choose(pods []int) int {
	if len(pods) == 0 {
		d.last = d.last[:0]
		return -1
	}
	slices.Sort(pods)
	if len(pods) > 1 && slices.Equal(pods, d.last) {
		d.shared++
	}
	d.last = append(d.last[:0], pods...)
	if n := len(d.spans); n > 0 && slices.Contains(pods, int(d.spans[n-1].pod)) {
		return int(d.spans[n-1].pod)
	}
	return pods[0]
}

// put adds what was measured of a device in a step. Steps come in order.
func (r *record) put(dev, step, pod int, x reading) {
	d := r.devices[dev]
	s := r.stateOf(pod, x)
	if x.peak >= 0 {
		if x.prof {
			d.prof++
		} else {
			d.plain++
		}
	}
	b := r.boards[d.board]
	b.paint(step*len(b.cells)/r.n, s, x)
	into, use := &r.unheld, &d.use
	if pod >= 0 {
		p := r.pods[pod]
		into, use = &r.held, &p.use
		if !slices.Contains(p.devices, dev) {
			p.devices = append(p.devices, dev)
		}
	}
	use.add(x, r.idleBelow)
	if x.mean >= 0 {
		into.use[percentOf(x.mean)]++
	}
	if x.memMiB >= 0 && b.memMiB > 0 && d.instance == "" {
		into.memory[percentOf(x.memMiB/b.memMiB)]++
	}
	d.spans = joined(d.spans, span{int32(step), int32(step) + 1, int32(pod), s})
}

// joined adds a span, or makes the last one longer.
func joined(spans []span, s span) []span {
	if n := len(spans); n > 0 && spans[n-1].to == s.from && spans[n-1].pod == s.pod && spans[n-1].state == s.state {
		spans[n-1].to = s.to
		return spans
	}
	return append(spans, s)
}

func (r *record) stateOf(pod int, x reading) state {
	switch {
	case pod < 0 && x.peak < 0:
		return dark
	case pod < 0 && x.peak >= r.idleBelow:
		return stray
	case pod < 0:
		return free
	case x.peak < 0:
		return blind
	case x.peak < r.idleBelow:
		return idle
	}
	return busy
}

func (b *board) paint(at int, s state, x reading) {
	c := &b.cells[at]
	c.any++
	switch s {
	case free, dark:
		c.none++
	case idle:
		c.idle++
	}
	if x.mean >= 0 {
		c.sum += float32(x.mean)
		c.known++
	}
}

// settle leaves out what is counted elsewhere, and lets every device be its own holder
// where the monitoring did not say who held what. It reports whether it did say.
func (r *record) settle() bool {
	parted := map[int]bool{}
	for _, d := range r.devices {
		if d.instance != "" {
			parted[d.board] = true
		}
	}
	for _, d := range r.devices {
		if d.instance == "" && parted[d.board] {
			d.spans = nil // its instances say more
		}
	}
	if len(r.pods) > 0 {
		return true
	}
	r.held, r.unheld = r.unheld, amounts{}
	for i, d := range r.devices {
		p := r.pod(podKey{"", "", "GPU " + r.boards[d.board].uuid + d.instance})
		r.pods[p].devices, r.pods[p].use = []int{i}, d.use
		was := d.spans
		d.spans = nil
		for _, s := range was {
			s.pod, s.state = int32(p), map[state]state{free: idle, dark: blind, stray: busy}[s.state]
			d.spans = joined(d.spans, s)
		}
	}
	return false
}

package assess

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// Result is what was found.
type Result struct {
	Source    string    `json:"source"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Step      string    `json:"step"`
	IdleBelow float64   `json:"idle_below"` // share of the GPU
	IdleFor   string    `json:"idle_for"`
	Metrics   []string  `json:"metrics"`
	Holders   bool      `json:"holders_known"` // whether it was said who held what

	GPUs       int         `json:"gpus"`
	Hosts      int         `json:"hosts"`
	Models     []Model     `json:"models"`
	Hours      Hours       `json:"gpu_hours"`
	IdleSpans  []IdleSpan  `json:"idle_by_length"`
	Use        *Quantiles  `json:"use_while_held,omitempty"`    // nil = not known
	Memory     *Quantiles  `json:"memory_while_held,omitempty"` // nil = not known
	Namespaces []Namespace `json:"namespaces"`
	Longest    []Holder    `json:"longest_idle"`
	Means      []Means     `json:"means"`
	Parking    *Parking    `json:"parking,omitempty"`
	Money      *Money      `json:"money,omitempty"`
	Notes      []string    `json:"notes"`

	record *record
	use    [101]uint32
	mem    [101]uint32
}

// Model is the GPUs of one model.
type Model struct {
	Name     string `json:"name"`
	GPUs     int    `json:"gpus"`
	PerHost  int    `json:"gpus_per_host"`
	MIG      bool   `json:"mig"` // the tables know how it is divided
	Profiled int    `json:"gpus_with_profiling_metrics"`
}

// Hours are GPU hours.
type Hours struct {
	All     float64 `json:"all"`
	NoData  float64 `json:"no_data"`
	Free    float64 `json:"unallocated"`
	Stray   float64 `json:"used_without_holder"`
	Held    float64 `json:"allocated"`
	Idle    float64 `json:"allocated_idle"`
	Busy    float64 `json:"allocated_in_use"`
	Unknown float64 `json:"allocated_use_unknown"`
}

// IdleSpan is the idle time of spans of some length.
type IdleSpan struct {
	Least string  `json:"at_least"`
	Hours float64 `json:"gpu_hours"`
	Spans int     `json:"spans"`
	least time.Duration
}

// Quantiles of a share, 0 to 1.
type Quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
}

// Namespace is what the pods of one held.
type Namespace struct {
	Name    string  `json:"name"`
	Held    float64 `json:"allocated_gpu_hours"`
	Idle    float64 `json:"idle_gpu_hours"`
	Unknown float64 `json:"use_unknown_gpu_hours"`
	Longest string  `json:"longest_idle"`
	longest int
}

// Holder is a pod that was idle for long.
type Holder struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	GPUs      int       `json:"gpus"`
	Since     time.Time `json:"idle_since"`
	For       string    `json:"idle_for"`
	MemoryMiB int64     `json:"memory_mib"` // the most it held of a GPU; -1 = not known
	steps     int
}

// Means is how many GPUs are needed by one means and all those before it.
type Means struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	Soon     Needed `json:"soon"`     // parked as soon as it pays
	Cautious Needed `json:"cautious"` // parked after the longer idle time
}

// Needed is how many GPUs were needed.
type Needed struct {
	P99  int     `json:"p99"` // enough for 99 % of the time
	Most int     `json:"most"`
	Mean float64 `json:"mean"`
	Pods int     `json:"pods"` // that the means is used for
	over []int32
}

// Parking is what parking alone would do, by the rule of gpupool's own shadow.
type Parking struct {
	GPUs  int    `json:"gpus"` // so that 90 % of wakes find one at once, on their host
	Parks int    `json:"parks"`
	Wakes int    `json:"wakes"`
	Wait  string `json:"mean_resume"`
}

// Money is what idle GPUs cost.
type Money struct {
	Price    float64    `json:"price_per_gpu_hour"`
	Currency string     `json:"currency"`
	Idle     float64    `json:"idle"`        // allocated and idle, in the time looked at
	Free     float64    `json:"unallocated"` // in the time looked at
	Monthly  [2]float64 `json:"fewer_gpus_per_month"`
}

// spare is the mark that use stays under in what becomes smaller.
func spare() float64 { return elastic.MarksOf(work.PoolElastic{}).Spare }

// Bounds of idle spans that are counted apart.
var lengths = []time.Duration{0, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour}

// analyse says what a record means.
func analyse(r *record, o Options, source string, metrics []string, note string) (*Result, error) {
	x := &Result{Source: source, From: r.from.UTC(), To: r.at(r.n).UTC(), Step: lengthOf(r.step), IdleBelow: o.IdleBelow, IdleFor: lengthOf(max(o.IdleFor, r.step)), Metrics: metrics, record: r, GPUs: len(r.boards), Notes: []string{}}
	if note != "" {
		x.Notes = append(x.Notes, note)
	}
	x.Holders = r.settle()
	r.short(r.steps(o.IdleFor))
	pools := r.pools(spare())
	x.use, x.mem = r.held.use, r.held.memory
	x.Use, x.Memory = quantiles(x.use), quantiles(x.mem)
	x.count()
	x.models(pools)
	x.holders()
	x.needs(pools, o)
	if o.Price > 0 {
		x.money(o)
	}
	x.notes(pools, o)
	return x, nil
}

func quantiles(bins [101]uint32) *Quantiles {
	sum, all := 0.0, 0.0
	for i, n := range bins {
		sum += float64(i) * float64(n)
		all += float64(n)
	}
	if all == 0 {
		return nil
	}
	at := func(q float64) float64 { return quantile(bins[:], q) / 100 }
	return &Quantiles{sum / all / 100, at(0.5), at(0.9), at(0.95), at(0.99)}
}

// weight is how much of a GPU a device is.
func (r *record) weight(d *device) float64 {
	b := r.boards[d.board]
	if d.instance == "" {
		return 1
	}
	if b.kind != nil {
		if p, ok := b.kind.Profile(d.profile); ok {
			return float64(p.Compute) / float64(b.kind.Slices)
		}
	}
	return 1.0 / 7
}

// count adds up the hours.
func (x *Result) count() {
	r := x.record
	x.IdleSpans = make([]IdleSpan, len(lengths))
	for i, least := range lengths {
		x.IdleSpans[i] = IdleSpan{Least: lengthOf(max(least, r.step)), least: least}
	}
	hosts := map[string]bool{}
	for _, b := range r.boards {
		if b.host != "" {
			hosts[b.host] = true
		}
	}
	x.Hosts = len(hosts)
	known := 0.0
	for _, d := range r.devices {
		w := r.weight(d)
		for _, s := range d.spans {
			h := w * r.hours(float64(s.to-s.from))
			known += h
			switch s.state {
			case free, dark:
				x.Hours.Free += h
			case stray:
				x.Hours.Stray += h
			case blind:
				x.Hours.Unknown += h
			case busy:
				x.Hours.Busy += h
			case idle:
				x.Hours.Idle += h
				x.idle(r.time(int(s.to-s.from)), h)
			}
		}
	}
	x.Hours.Held = x.Hours.Idle + x.Hours.Busy + x.Hours.Unknown
	x.Hours.All = r.hours(float64(r.n * len(r.boards)))
	x.Hours.NoData = max(0, x.Hours.All-known)
}

func (x *Result) idle(long time.Duration, hours float64) {
	for i, s := range slices.Backward(x.IdleSpans) {
		if long >= s.least {
			x.IdleSpans[i].Hours += hours
			x.IdleSpans[i].Spans++
			return
		}
	}
}

func (x *Result) models(pools []*pool) {
	for _, p := range pools {
		m := Model{Name: p.name, GPUs: p.boards, PerHost: p.host, MIG: p.geo != nil}
		seen := map[int]bool{}
		for _, d := range x.record.devices {
			if name := cmp.Or(x.record.boards[d.board].model, "model not known"); d.prof > 0 && !seen[d.board] && (name == p.name || x.record.boards[d.board].kind != nil && x.record.boards[d.board].kind.Key == p.name) {
				seen[d.board] = true
				m.Profiled++
			}
		}
		x.Models = append(x.Models, m)
	}
	slices.SortFunc(x.Models, func(a, b Model) int { return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Name, b.Name)) })
}

// listed is how many of the longest idle holders are named.
const listed = 10

// holders says who holds idle GPUs.
func (x *Result) holders() {
	r := x.record
	of := map[string]*Namespace{}
	longest := map[int32]*Holder{}
	for _, d := range r.devices {
		w := r.weight(d)
		for _, s := range d.spans {
			if s.pod < 0 {
				continue
			}
			name := r.pods[s.pod].namespace
			n := of[name]
			if n == nil {
				n = &Namespace{Name: name}
				of[name] = n
			}
			h := w * r.hours(float64(s.to-s.from))
			n.Held += h
			switch s.state {
			case blind:
				n.Unknown += h
			case idle:
				n.Idle += h
				n.longest = max(n.longest, int(s.to-s.from))
				x.holder(longest, s)
			}
		}
	}
	x.Namespaces, x.Longest = []Namespace{}, []Holder{}
	for _, n := range of { // order: sorted below
		n.Longest = lengthOf(r.time(n.longest))
		x.Namespaces = append(x.Namespaces, *n)
	}
	slices.SortFunc(x.Namespaces, func(a, b Namespace) int { return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(a.Name, b.Name)) })
	for _, h := range longest { // order: sorted below
		h.For = lengthOf(r.time(h.steps))
		x.Longest = append(x.Longest, *h)
	}
	slices.SortFunc(x.Longest, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.steps, a.steps), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	x.Longest = x.Longest[:min(listed, len(x.Longest))]
}

func (x *Result) holder(longest map[int32]*Holder, s span) {
	p := x.record.pods[s.pod]
	h := longest[s.pod]
	if h == nil {
		h = &Holder{Namespace: p.namespace, Pod: p.name, GPUs: len(p.devices), MemoryMiB: int64(math.Round(p.use.memMiB))}
		longest[s.pod] = h
	}
	if n := int(s.to - s.from); n > h.steps {
		h.steps, h.Since = n, x.record.at(int(s.from)).UTC()
	}
}

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

// monthHours is a twelfth of a year of 365.25 days.
const monthHours = 365.25 * 24 / 12

// Needed is the least and the most GPUs that were needed with all means.
func (x *Result) Needed() (least, most int) {
	last := x.Means[len(x.Means)-1]
	return last.Soon.P99, max(last.Cautious.Most, last.Soon.Most)
}

func (x *Result) money(o Options) {
	least, most := x.Needed()
	x.Money = &Money{Price: o.Price, Currency: o.Currency, Idle: x.Hours.Idle * o.Price, Free: x.Hours.Free * o.Price,
		Monthly: [2]float64{float64(x.GPUs-most) * monthHours * o.Price, float64(x.GPUs-least) * monthHours * o.Price}}
}

// notes say what is missing, and what was not modelled.
func (x *Result) notes(pools []*pool, o Options) {
	say := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	h := x.Hours
	if h.NoData > 0.005*h.All {
		say("%.1f %% of the GPU hours have no sample. They are in no share, and while a GPU has none it is needed by nobody: if its pods ran on, more GPUs were needed.", 100*h.NoData/h.All)
	}
	if h.Unknown > 0.005*h.Held {
		say("For %.1f %% of the allocated hours the use was not measured: they are not idle and not busy. Whoever held those GPUs keeps them whole.", 100*h.Unknown/h.Held)
	}
	if !x.Holders {
		say("The metrics do not say which pod or job has a GPU, so each GPU counts as one holder that always has it. Let dcgm-exporter map GPUs to pods (DCGM_EXPORTER_KUBERNETES=true) or to jobs (its HPC job mapping).")
	}
	if h.Stray > 0 {
		say("%.1f GPU hours were used although no pod had the GPU: something runs past Kubernetes. Those GPUs are needed whole.", h.Stray)
	}
	shared, plain := 0, 0
	for _, d := range x.record.devices {
		if d.shared > 0 {
			shared++
		}
		if d.prof == 0 && d.plain > 0 {
			plain++
		}
	}
	if shared > 0 {
		say("%d GPUs are shared already (several pods at once for more than a step): each counts as held by one pod, whose use is that of all.", shared)
	}
	if plain > 0 && x.Metrics[0] == engineActive {
		say("%d devices have %s only, without profiling metrics: it says whether anything ran, and not how much of the GPU it took.", plain, gpuUtil)
	}
	for _, p := range pools {
		if p.geo == nil {
			say("%s: no MIG, or the tables of gpupool do not know it, so no slices there.", p.name)
		}
	}
	if x.To.Sub(x.From) < 7*24*time.Hour {
		say("That is a short time to judge by: a week or more has working days and weekends.")
	}
	say("Idle is: no sample of the use at or over %.3g %% for %s. Use is not everything: a GPU that idles may hold a model in memory for someone who must not wait.", 100*o.IdleBelow, x.IdleFor)
	say("Not modelled: work that came later because it had waited; pods that belong together over several hosts; CPU and main memory, which what is parked needs; who would not allow it. " +
		"A parked pod may wake on any GPU of its model here; gpupool wakes it on its own host. Sizes are by what a pod was seen to use in all this time, which nobody knows when it starts.")
}

// lengthOf writes a time with the units it needs.
func lengthOf(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d > 24*time.Hour:
		return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d > time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

package assess

import (
	"cmp"
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

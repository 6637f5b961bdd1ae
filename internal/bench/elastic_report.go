package bench

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpupool/gpupool/internal/sim"
)

// ElasticTarget is what a scenario should reach, and whether it did.
type ElasticTarget struct {
	Name  string   `json:"name"`
	Least *float64 `json:"least,omitempty"`
	Most  *float64 `json:"most,omitempty"`
	Got   *float64 `json:"got"`
	Met   bool     `json:"met"`
	Why   string   `json:"why,omitempty"` // it was not met
}

// aim sets a scenario's targets beside what came out.
func (s *ElasticScenario) aim() {
	least := func(name string, x float64, got *float64, why string) {
		t := ElasticTarget{Name: name, Least: new(x), Got: got, Met: got != nil && *got >= x}
		s.add(t, why)
	}
	most := func(name string, x float64, got *float64, why string) {
		t := ElasticTarget{Name: name, Most: new(x), Got: got, Met: got != nil && *got <= x}
		s.add(t, why)
	}
	if s.ShadowError != nil {
		most("shadow_error", 0.10, new(math.Abs(*s.ShadowError)), "it takes every task to be on any host with the same chance, and a wake to be late only where no GPU may be taken: where popular tasks share a host, or the search is held to requests that wait for other reasons, it is off")
	}
	switch {
	case s.Name == "market":
		least("saving", 0.82, s.Saving, "on fewer GPUs too many requests find their model parked and must wait for another to leave: suspend and resume are a second and the time of its memory over PCIe each")
		least("started_within_10s", 1-mostLate, s.Within, "even a GPU for each task does not start so many in time: see started_within_10s_static")
	case s.Name == "notebooks":
		least("started_within_10s", 1-mostLate, s.Within, "a cell of a parked notebook must wait for a GPU and for its memory")
		most("idle_pooled", 0.10, s.IdlePooled, "between two cells of a burst a notebook keeps its GPU for as long as parking it would cost, and loading, suspending and resuming hold a GPU without computing")
		most("slowdown_p95", 1.10, s.SlowdownP95, "a cell after a pause waits until its notebook is resumed, which is more than a tenth of a short cell")
	case s.OverCommon != nil:
		most("over_common", 1.10, s.OverCommon, "a pool borrows only when more than one of its tasks wait and the lender has nobody in line, and a gang never spans pools")
	default:
		most("idle_while_waiting", 0.05, s.IdleWaiting, "training keeps its GPUs whatever it uses of them, and as published it uses few of what it asks for")
		most("slowdown_p95", 1.1, s.SlowdownP95, "tasks wait in line: the plan holds pooled waits to static ones, not to a slowdown")
	}
}

func (s *ElasticScenario) add(t ElasticTarget, why string) {
	if t.Got == nil {
		why = "nothing to tell it by: nobody waited"
	}
	if !t.Met {
		t.Why = why
	}
	s.Targets = append(s.Targets, t)
}

func (t *ElasticTarget) wanted() string {
	if t.Least != nil {
		return fmt.Sprintf("at least %.3g", *t.Least)
	}
	return fmt.Sprintf("at most %.3g", *t.Most)
}

// Page shows the scenarios and which targets were met.
func (r *ElasticResult) Page(wide bool) Page {
	p := Page{
		Title: "GPUs that idle, given away",
		Intro: "The same workloads kept apart and pooled, through the engine that serves, on fake hardware in virtual time. " + fmt.Sprintf("Trace: %s, seed %d.", r.Trace, r.Seed),
		Head:  []string{"scenario"}, Notes: r.Notes, WallS: r.WallS,
	}
	for _, c := range elasticColumns() {
		if !c.wide || wide {
			p.Head = append(p.Head, c.name)
		}
	}
	targets := Section{Title: "Targets", Head: []string{"scenario", "target", "wanted", "got", "met"}}
	met, of := 0, 0
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		row := []string{s.Name}
		for _, c := range elasticColumns() {
			if !c.wide || wide {
				row = append(row, c.cell(s))
			}
		}
		p.Rows = append(p.Rows, row)
		for k := range s.Targets {
			t := &s.Targets[k]
			word := "no: " + t.Why
			if of++; t.Met {
				met, word = met+1, "yes"
			}
			targets.Rows = append(targets.Rows, []string{s.Name, t.Name, t.wanted(), plain(t.Got), word})
		}
	}
	p.Sections = []Section{targets}
	p.Last = fmt.Sprintf("targets met: %d of %d", met, of)
	return p
}

// elasticColumn is a column of the table; a wide one is shown only on demand.
type elasticColumn struct {
	name string
	wide bool
	cell func(s *ElasticScenario) string
}

func elasticColumns() []elasticColumn {
	gpus := func(of func(s *ElasticScenario) int) func(s *ElasticScenario) string {
		return func(s *ElasticScenario) string {
			if of(s) == 0 {
				return "-"
			}
			return fmt.Sprint(of(s))
		}
	}
	percent := func(of func(s *ElasticScenario) *float64) func(s *ElasticScenario) string {
		return func(s *ElasticScenario) string {
			if x := of(s); x != nil {
				return fmt.Sprintf("%.1f %%", 100**x)
			}
			return "-"
		}
	}
	value := func(of func(s *ElasticScenario) *float64) func(s *ElasticScenario) string {
		return func(s *ElasticScenario) string { return plain(of(s)) }
	}
	return []elasticColumn{
		{"GPUs apart", false, gpus(func(s *ElasticScenario) int { return s.GPUsStatic })},
		{"pooled", false, gpus(func(s *ElasticScenario) int { return s.GPUsPooled })},
		{"shadow said", false, gpus(func(s *ElasticScenario) int { return s.GPUsShadow })},
		{"bound", false, gpus(func(s *ElasticScenario) int { return s.Bound })},
		{"saving", false, percent(func(s *ElasticScenario) *float64 { return s.Saving })},
		{"idle apart", false, percent(func(s *ElasticScenario) *float64 { return s.IdleStatic })},
		{"idle pooled", false, percent(func(s *ElasticScenario) *float64 { return s.IdlePooled })},
		{"idle, some wait", true, percent(func(s *ElasticScenario) *float64 { return s.IdleWaiting })},
		{"in 10 s apart", false, percent(func(s *ElasticScenario) *float64 { return s.WithinStatic })},
		{"in 10 s", false, percent(func(s *ElasticScenario) *float64 { return s.Within })},
		{"mean wait ratio", true, value(func(s *ElasticScenario) *float64 { return s.WaitMeanRatio })},
		{"p99 wait", true, func(s *ElasticScenario) string {
			if s.WaitP99S == nil {
				return "-"
			}
			return sim.Seconds(*s.WaitP99S)
		}},
		{"slowdown p95", false, value(func(s *ElasticScenario) *float64 { return s.SlowdownP95 })},
		{"apart", true, value(func(s *ElasticScenario) *float64 { return s.SlowdownStatic })},
		{"moves/task", false, value(func(s *ElasticScenario) *float64 { return s.MovesPerTask })},
		{"ran", true, func(s *ElasticScenario) string { return fmt.Sprintf("%.1f s", s.WallS) }},
	}
}

func plain(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g", *x)
}

// elasticNotes says what a reader must know to take the numbers for what they are.
func elasticNotes(r *ElasticResult) []string {
	out := []string{
		"market and notebooks: apart is a GPU for each task at once; pooled is the fewest GPUs, in hosts of 8 and a smaller last one, each with 2 TiB of main memory, with which 90 % of requests begin within 10 s of coming; that target is met by construction wherever the search succeeds",
		"market: how soon idle services are parked, and the random order in which they come, were chosen by what saved most with seed 1; look at other seeds before believing the saving",
		fmt.Sprintf("a task that idled for %s is parked though nobody waits, so that whoever wakes finds a GPU free; parking and waking each take a second and the memory in use at 9.6 GiB/s", serviceAfter),
		fmt.Sprintf("a service serves %d requests at once, a notebook %d; a request is not slowed by others at the same time", sim.InferenceAtOnce, sim.InteractiveAtOnce),
		"idle: of the GPU time held, what no request or phase computes in; loading, suspending and resuming count as idle",
		fmt.Sprintf("silos: each way is held to a 99th percentile of waits of %s; a silo has hosts in proportion to what it needs apart", strings.TrimSuffix(siloP99.String(), "0s")),
		"slowdown: of a request or a task, from coming to the end over what it takes, or over 10 s where that is more",
	}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		if s.Skipped != "" {
			out = append(out, s.Name+" did not run: "+s.Skipped)
			continue
		}
		out = append(out, fmt.Sprintf("%s: bound: %s", s.Name, s.BoundIs))
		for _, n := range s.notes {
			out = append(out, s.Name+": "+n)
		}
		if s.Synthetic != "" {
			out = append(out, s.Name+": synthetic: "+s.Synthetic)
		}
	}
	return out
}

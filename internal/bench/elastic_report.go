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

	Bound     *float64 `json:"bound,omitempty"`     // no policy can do better than this on the workload
	BoundIs   string   `json:"bound_is,omitempty"`  //
	Forbidden bool     `json:"forbidden,omitempty"` // by the bound: it cannot be met
}

// bounded says how well a target can be met at all.
func (s *ElasticScenario) bounded(bound *float64, is string) {
	t := &s.Targets[len(s.Targets)-1]
	t.Bound, t.BoundIs = bound, is
	if bound != nil && !t.Met {
		t.Forbidden = t.Most != nil && *bound > *t.Most || t.Least != nil && *bound < *t.Least
	}
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
	alone := "with a GPU for each task, and no move"
	switch {
	case s.Name == "market":
		least("saving", 0.82, s.Saving, "on fewer GPUs too many requests find their model parked and must wait for another to leave: suspend and resume are a second and the time of its memory over PCIe each")
		s.bounded(new(1-float64(s.Bound)/float64(s.GPUsStatic)), s.BoundIs)
		least("started_within_10s", 1-mostLate, s.Within, "even a GPU for each task does not start so many in time")
		s.bounded(s.WithinStatic, alone)
		most("slowdown_p95", mostSlow, s.SlowdownP95, "a service is at 4 requests at once and they come in bursts, so some wait on any number of GPUs; parking adds its price, and fewer GPUs the wait for one")
		s.bounded(s.SlowdownStatic, alone)
	case s.Name == "notebooks":
		least("started_within_10s", 1-mostLate, s.Within, "a cell of a parked notebook must wait for a GPU and for its memory")
		s.bounded(s.WithinStatic, alone)
		most("idle_pooled", notebookIdle, s.IdlePooled, "between two cells a notebook keeps its GPU, as every wake is felt, and loading, suspending and resuming hold a GPU without computing")
		most("slowdown_p95", mostSlow, s.SlowdownP95, "a cell after a pause waits until its notebook is resumed, which is more than a tenth of a short cell")
		s.bounded(s.SlowdownStatic, alone)
		if s.Beside != nil {
			least("work_done", 1, ratio(s.Beside.Hours, s.Beside.HoursApart), "the training beside the notebooks does less than on GPUs of its own")
		}
	case s.OverCommon != nil:
		most("over_common", 1.10, s.OverCommon, "a pool borrows only when more than one of its tasks wait and the lender has nobody in line, and a gang never spans pools")
		most("slowdown_p95", mostSlow, s.SlowdownP95, "tasks wait in line: the search holds all ways to a wait, not to a slowdown")
	default:
		most("idle_while_waiting", 0.05, s.IdleWaiting, fmt.Sprintf("a task keeps its GPUs while it loads and between the phases in which it computes, and does so in %.2g of the time; tasks of several GPUs, which have %.2g of the GPU time, never share one", 1-s.computing, s.several))
		s.bounded(new(max(0, 1-sharedMost*s.computing)), fmt.Sprintf("on average over all GPU time, with %d tasks on each GPU that never compute at the same time; with one on each it is %.3g", sharedMost, 1-s.computing))
		most("slowdown_p95", mostSlow, s.SlowdownP95, "on the most GPUs that were tried more tasks still waited in line")
	}
}

// sharedMost is how many tasks share a GPU at most.
const sharedMost = 4

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
	targets := Section{Title: "Targets", Head: []string{"scenario", "target", "wanted", "got", "bound", "met"}}
	met, of, forbidden, silent := 0, 0, 0, 0
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
			switch of++; {
			case t.Met:
				met, word = met+1, "yes"
			case t.Got == nil:
				silent++
			case t.Forbidden:
				forbidden, word = forbidden+1, "cannot be: the bound is "+t.BoundIs
			}
			targets.Rows = append(targets.Rows, []string{s.Name, t.Name, t.wanted(), plain(t.Got), plain(t.Bound), word})
		}
	}
	p.Sections = []Section{targets}
	p.Last = fmt.Sprintf("targets met: %d of %d; a bound of the workload forbids %d, and %d cannot be told", met, of, forbidden, silent)
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
		{"unused pooled", true, percent(func(s *ElasticScenario) *float64 { return s.UnusedPooled })},
		{"idle, some wait", true, percent(func(s *ElasticScenario) *float64 { return s.IdleWaiting })},
		{"unused, some wait", true, percent(func(s *ElasticScenario) *float64 { return s.UnusedWaiting })},
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
		{"of a task", true, value(func(s *ElasticScenario) *float64 { return s.SlowdownTasks })},
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
		"market: apart is a GPU for each service; pooled is the fewest GPUs, in hosts of 8 and a smaller last one, each with 2 TiB of main memory, with which 90 % of requests begin within 10 s of coming; that target is met by construction",
		"notebooks: apart is a GPU for each notebook at once, and GPUs of its own for training; pooled is the fewest GPUs with which all targets hold and as much training is done; where there is a number, they are met by construction",
		"market: how soon idle services are parked is what let most requests begin in time with seeds 1 to 4 on 44 GPUs, and 5 to 8 agreed; the saving differs from seed to seed, so look at several before believing one",
		fmt.Sprintf("a service that idled for %s, and a notebook that did for %s, is parked though nobody waits, so that whoever wakes finds a GPU free; parking and waking each take a second and the memory in use at 9.6 GiB/s", serviceAfter, notebookAfter),
		fmt.Sprintf("a service serves %d requests at once, a notebook %d; a request is not slowed by others at the same time", sim.InferenceAtOnce, sim.InteractiveAtOnce),
		"idle: of the time of GPUs that are held, that in which nothing on them computes: no request, no phase of 5 % or more; loading, suspending and resuming compute nothing. On notebooks it is of all GPUs of the pool, free ones too, as training always waits. While someone waits it is of all GPUs as well",
		"unused: 1 - mean utilisation of what is held: a GPU whose task computes 30 % is not idle, and 70 % of it is unused. Published shares of idle GPUs are the former, published utilisations the latter",
		"training: apart and pooled are the fewest GPUs, in hosts of 8, with which 95 % of tasks are slowed by no more than 1.10, in line or by others; met by construction, and as waits do not fall at every step a host or two more or less say nothing. Tasks on one GPU that compute more than it has each get on at 1/sum of their demand; services and notebooks have whole GPUs",
		fmt.Sprintf("silos: each way is held to a 99th percentile of waits of %s; a silo has hosts in proportion to what it needs apart", strings.TrimSuffix(siloP99.String(), "0s")),
		"slowdown: of a request (market, notebooks) or a task (the others), from coming to the end over what it takes with everything at hand, or over 10 s where that is more; JSON has the ratio to apart too, and of tasks with requests that of all their requests together",
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

package forecast_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

const (
	shipped = "../../testdata/traces"
	shared  = "../../../shared/traces"
)

// running is a task between its submission and its end.
type running struct {
	end  time.Duration
	at   int // in the trace
	job  forecast.Job
	said forecast.Forecast
	ran  time.Duration
}

// ends is what runs, the next to end in front.
type ends []running

func (e ends) Len() int { return len(e) }
func (e ends) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].end, e[j].end), cmp.Compare(e[i].at, e[j].at)) < 0
}
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *ends) Push(x any) { *e = append(*e, x.(running)) }

func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// quality is how good forecasts were that were made when the tasks were submitted.
type quality struct {
	coverage        float64 // share of tasks that ended within P90
	worst           float64 // and of the tenant with 500 tasks or more for which that is furthest from 0.9
	pin50, pin90    float64 // pinball loss, hours
	log50, log90    float64 // the same of log2 of the seconds
	rank50, typical float64 // Spearman's rank correlation with the run time
}

func (q quality) String() string {
	return fmt.Sprintf("within P90 %.3f (worst tenant %.2f)  pinball %.2f h %.2f h, of log2 %.3f %.3f  rank of P50 %.3f, of Typical %.3f",
		q.coverage, q.worst, q.pin50, q.pin90, q.log50, q.log90, q.rank50, q.typical)
}

// replay asks about each task as it is submitted, knowing only those that have ended.
// Tasks start as they are submitted.
func replay(x *trace.Trace, f *forecast.Forecaster, jobOf func(*trace.Task) forecast.Job) (q quality) {
	var run ends
	var p50, typical, was []float64
	tenants := map[string][2]int{} // asked, within
	n := 0.0
	for i := range x.Tasks {
		t := &x.Tasks[i]
		for len(run) > 0 && run[0].end <= t.Submit {
			r := heap.Pop(&run).(running)
			f.Learn(r.job, r.said, r.ran)
		}
		j := jobOf(t)
		said := f.Ask(j)
		heap.Push(&run, running{t.Submit + t.Duration, i, j, said, t.Duration})
		p50, typical, was = append(p50, said.P50.Hours()), append(typical, said.Typical.Hours()), append(was, t.Duration.Hours())
		if said.Basis == forecast.None {
			continue
		}
		n++
		seen := tenants[t.Tenant]
		seen[0]++
		if t.Duration <= said.P90 {
			seen[1]++
			q.coverage++
		}
		tenants[t.Tenant] = seen
		q.pin50 += pinball(.5, said.P50.Hours(), t.Duration.Hours())
		q.pin90 += pinball(.9, said.P90.Hours(), t.Duration.Hours())
		q.log50 += pinball(.5, octaves(said.P50), octaves(t.Duration))
		q.log90 += pinball(.9, octaves(said.P90), octaves(t.Duration))
	}
	for _, sum := range []*float64{&q.coverage, &q.pin50, &q.pin90, &q.log50, &q.log90} {
		*sum /= n
	}
	q.worst = 0.9
	for _, seen := range tenants {
		if c := float64(seen[1]) / float64(seen[0]); seen[0] >= 500 && math.Abs(c-.9) > math.Abs(q.worst-.9) {
			q.worst = c
		}
	}
	q.rank50, q.typical = spearman(p50, was), spearman(typical, was)
	return q
}

func octaves(d time.Duration) float64 { return math.Log2(max(d.Seconds(), 1)) }

func pinball(level, said, was float64) float64 {
	return max(level*(was-said), (level-1)*(was-said))
}

func spearman(a, b []float64) float64 {
	a, b = ranks(a), ranks(b)
	mean := float64(len(a)-1) / 2
	var both, x, y float64
	for i := range a {
		both += (a[i] - mean) * (b[i] - mean)
		x += (a[i] - mean) * (a[i] - mean)
		y += (b[i] - mean) * (b[i] - mean)
	}
	return both / math.Sqrt(x*y)
}

// ranks gives equal values their mean rank.
func ranks(v []float64) []float64 {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
	r := make([]float64, len(v))
	for i := 0; i < len(v); {
		j := i
		for j+1 < len(v) && v[order[j+1]] == v[order[i]] {
			j++
		}
		for k := i; k <= j; k++ {
			r[order[k]] = float64(i+j) / 2
		}
		i = j + 1
	}
	return r
}

func byEveryone(*trace.Task) forecast.Job { return forecast.Job{} }

func byTenant(t *trace.Task) forecast.Job { return forecast.Job{Tenant: t.Tenant} }

func byAll(t *trace.Task) forecast.Job {
	return forecast.Job{Tenant: t.Tenant, Name: t.Name, Request: work.Request{GPUs: t.GPUs}}
}

// TestTraces measures forecasts on what really ran, in the variants that the defaults
// were chosen from. These traces have no names: what the rungs above tenant and
// request bring does not show here.
func TestTraces(t *testing.T) {
	for _, x := range []struct {
		path string
		rank float64 // that of Typical is at least
	}{{shipped + "/itp", 0.15}, {shared + "/itp", 0.29}, {shared + "/philly", 0.69}} {
		t.Run(x.path[len("../../"):], func(t *testing.T) {
			if _, err := os.Stat(x.path); err != nil {
				t.Skip("../shared/traces is not here")
			}
			read, err := trace.Read(x.path, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("everyone        %s", replay(read, forecast.New(forecast.Config{}), byEveryone))
			t.Logf("tenant          %s", replay(read, forecast.New(forecast.Config{}), byTenant))
			f := forecast.New(forecast.Config{})
			all := replay(read, f, byAll)
			t.Logf("the ladder      %s", all)
			within, of := f.Coverage()
			t.Logf("of %d that ended, %d did so within their P90", of, within)
			if all.coverage < 0.87 || all.coverage > 0.93 {
				t.Errorf("%.3f ended within P90, want 0.87 to 0.93", all.coverage)
			}
			if all.typical < x.rank {
				t.Errorf("rank correlation %.3f, want %.2f or more", all.typical, x.rank)
			}
			if testing.Short() {
				return
			}
			for _, m := range []int{16, 32, 64, 128, 256} {
				t.Logf("memory of %-3d   %s", m, replay(read, forecast.New(forecast.Config{Memory: m}), byAll))
			}
			for _, m := range []int{1, 4, 8, 16} {
				t.Logf("trusted at %-3d  %s", m, replay(read, forecast.New(forecast.Config{Least: m}), byAll))
			}
		})
	}
}

// TestLeft measures what Remaining says of tasks that still run an hour after they
// began.
func TestLeft(t *testing.T) {
	x, err := trace.Read(shipped+"/itp", trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		at   time.Duration
		task int
		ends bool
	}
	var events []event
	for i, task := range x.Tasks {
		events = append(events, event{task.Submit + task.Duration, i, true})
		if task.Duration > time.Hour {
			events = append(events, event{task.Submit + time.Hour, i, false})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	f := forecast.New(forecast.Config{})
	within, before, of := 0, 0, 0
	for _, e := range events {
		task := &x.Tasks[e.task]
		j := byAll(task)
		if e.ends {
			f.Learn(j, forecast.Forecast{Basis: forecast.None}, task.Duration)
			continue
		}
		left := f.Remaining(j, time.Hour)
		of++
		if task.Duration-time.Hour <= left.P90 {
			within++
		}
		if task.Duration-time.Hour <= left.P50 {
			before++
		}
	}
	t.Logf("of %d tasks after an hour, %d ended within P50 and %d within P90", of, before, within)
	if p50, p90 := float64(before)/float64(of), float64(within)/float64(of); p50 < 0.35 || p50 > 0.65 || p90 < 0.75 || p90 > 0.97 {
		t.Errorf("%.2f ended within P50 and %.2f within P90", p50, p90)
	}
}

package elastic

import (
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

const begin = work.Time(1_000_000 * time.Second)

func TestGuardBounds(t *testing.T) {
	window := GuardOf(work.Guard{}).Window
	every := func(n int, step time.Duration, x Count) func(*Jitter) work.Time {
		return func(j *Jitter) work.Time {
			now := begin
			for range n {
				now = now.Add(step)
				j.Add(now, window, x)
			}
			return now
		}
	}
	carves := func(n int, step time.Duration) func(*Jitter) work.Time {
		return func(j *Jitter) work.Time {
			now := begin
			for range n {
				now = now.Add(step)
				j.CarveFailed(now)
			}
			return now
		}
	}
	for name, x := range map[string]struct {
		active, woken int
		bounds        work.Guard
		do            func(*Jitter) work.Time
		want          string
	}{
		"few moves":                          {1, 0, work.Guard{}, every(19, time.Second, Count{Moves: 1}), ""},
		"a pool parks at once all that idle": {100, 0, work.Guard{}, every(100, time.Second, Count{Moves: 1}), ""},
		"one task to and fro":                {1, 0, work.Guard{}, every(20, time.Minute, Count{Moves: 1}), "40 moves a task and hour, the bound is 30: 20 moves of 1 tasks in 30m"},
		"the same over an hour each":         {1, 0, work.Guard{}, every(40, 4*time.Minute, Count{Moves: 1}), ""},
		"no bound":                           {1, 0, work.NoGuard(), every(500, time.Second, Count{Moves: 1, Failed: 1, Wakes: 1, Waited: time.Hour}), ""},
		"half of the moves fail":             {9, 0, work.Guard{}, every(10, time.Minute, Count{Moves: 2, Failed: 1}), "10 of 20 moves failed in 30m, the bound is 20 %"},
		"few moves that fail":                {9, 0, work.Guard{}, every(9, time.Minute, Count{Moves: 1, Failed: 1}), ""},
		"carves fail":                        {9, 0, work.Guard{}, carves(11, time.Second), "11 slices could not be made in 10m, the bound is 10"},
		"carves fail now and then":           {9, 0, work.Guard{}, carves(50, 2*time.Minute), ""},
		"woken tasks wait":                   {2, 1, work.Guard{}, every(20, 20*time.Second, Count{Wakes: 1, Waited: 11 * time.Second}), "0.55 to one, the bound is 0.5"},
		"woken tasks run":                    {2, 2, work.Guard{}, every(20, 20*time.Second, Count{Wakes: 1, Waited: 11 * time.Second}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			j := Jitter{Active: x.active, Woken: x.woken}
			j.Reset(begin)
			now := x.do(&j)
			if got := j.Over(x.bounds, now); x.want == "" && got != "" || !strings.Contains(got, x.want) {
				t.Errorf("got %q, want %q", got, x.want)
			}
			if len(j.Parts) > parts+1 || len(j.Carves) > mostCarves {
				t.Errorf("%d parts and %d carves are kept", len(j.Parts), len(j.Carves))
			}
		})
	}
}

// TestJitterTime: time is counted the same however often one looks.
func TestJitterTime(t *testing.T) {
	const window = 12 * time.Minute
	once, often := Jitter{Active: 3, Woken: 2}, Jitter{Active: 3, Woken: 2}
	once.Reset(begin)
	often.Reset(begin)
	now := begin
	for i := range 400 {
		now = now.Add(time.Duration(i%7) * time.Second)
		often.Pass(now, window)
	}
	once.Pass(now, window)
	a, b := once.sum(now, window), often.sum(now, window)
	if a != b || a.Tasks*2 != a.Ran*3 || a.Ran > 2*window || a.Ran < 2*window*11/12 {
		t.Errorf("at once %+v, bit by bit %+v", a, b)
	}
	if later := once.sum(now.Add(2*window), window); later.Ran != 2*window {
		t.Errorf("much later: %+v", later)
	}
}

package queue

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/work"
)

// bound is the age beyond which a task goes before everyone who is new, for a weight of
// priority: the most urgent (high, and inference or interactive) stands 1.5 steps of
// weight·Horizon ahead and the least urgent 1 behind; a tenant's share moves its tasks by
// (1-weight)/2·Horizon at most, ahead or back; and a long task is put back by as much.
func bound(weight float64) time.Duration {
	return time.Duration((2.5*weight+1.5*(1-weight))*float64(Horizon)) + time.Second
}

func drawJob(t *rapid.T, since work.Time) Job {
	j := Job{Since: since, Priority: work.Priority(rapid.IntRange(0, 2).Draw(t, "priority")), Latency: rapid.Bool().Draw(t, "latency"),
		Length: time.Duration(rapid.OneOf(rapid.Int64Range(0, 1<<40), rapid.Int64Range(0, 1<<61)).Draw(t, "length"))}
	if rapid.Bool().Draw(t, "deadline") { // to come or long past
		j.Latest = rapid.OneOf(rapid.Just(work.Time(1)), rapid.Just(work.Time(-1<<60)), rapid.Custom(func(t *rapid.T) work.Time {
			return since + work.Time(rapid.Int64Range(-int64(90*24*time.Hour), int64(90*24*time.Hour)).Draw(t, "latest"))
		})).Draw(t, "latest")
	}
	return j
}

func drawStart(t *rapid.T, weight float64) work.Time {
	return Rules{}.HeadStart(rapid.Float64Range(0, 1).Draw(t, "had"), rapid.Float64Range(0.001, 1).Draw(t, "entitled"), weight)
}

// TestAgeWins: whatever the priorities, classes, shares, lengths and deadlines of two
// tasks, the one that came a bound earlier goes first.
func TestAgeWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.Float64Range(0, 1).Draw(t, "weight")
		at := work.Time(rapid.Int64Range(1<<59, 1<<60).Draw(t, "at"))
		a, b := drawJob(t, at), drawJob(t, at.Add(bound(weight)))
		old := Rules{}.Turn(a, weight) - drawStart(t, weight)
		young := Rules{}.Turn(b, weight) - drawStart(t, weight)
		if old >= young {
			t.Fatalf("%+v came %s earlier, but stands %s behind %+v", a, bound(weight), time.Duration(old-young), b)
		}
	})
}

// TestPriorityFirst: with the default weight nothing but age and deadlines puts a task
// before one of higher priority.
func TestPriorityFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := work.Time(rapid.Int64Range(1<<59, 1<<60).Draw(t, "at"))
		a, b := drawJob(t, at), drawJob(t, at)
		a.Latest, b.Latest, b.Latency = 0, 0, a.Latency
		if a.Priority == b.Priority {
			t.Skip("alike")
		}
		before := Rules{}.Turn(a, DefaultWeight)-drawStart(t, DefaultWeight) < Rules{}.Turn(b, DefaultWeight)-drawStart(t, DefaultWeight)
		if before != (a.Priority < b.Priority) {
			t.Fatalf("%+v goes before %+v: %v", a, b, before)
		}
	})
}

func TestTurn(t *testing.T) {
	const at = work.Time(1 << 60)
	base := Job{Since: at, Priority: work.Normal}
	w := DefaultWeight
	step := time.Duration(w * float64(Horizon))
	most := time.Duration((1 - w) / 2 * float64(Horizon))
	turn := func(change func(*Job)) time.Duration {
		j := base
		change(&j)
		return Rules{}.Turn(j, w).Sub(at)
	}
	for _, x := range []struct {
		name   string
		change func(*Job)
		want   time.Duration
	}{
		{"normal", func(*Job) {}, 0},
		{"high", func(j *Job) { j.Priority = work.High }, -step},
		{"low", func(j *Job) { j.Priority = work.Low }, step},
		{"inference", func(j *Job) { j.Latency = true }, -step / 2},
		{"longer than the bound", func(j *Job) { j.Length = 1000 * time.Hour }, most},
		{"deadline far away", func(j *Job) { j.Latest = at.Add(365 * 24 * time.Hour) }, 0},
		{"deadline a step away", func(j *Job) { j.Latest = at.Add(step) }, 0},
		{"deadline near", func(j *Job) { j.Latest = at.Add(time.Hour) }, time.Hour - step},
		{"deadline now", func(j *Job) { j.Latest = at }, -step},
		{"deadline that cannot be met", func(j *Job) { j.Latest = at.Add(-1000 * time.Hour) }, -step},
		{"deadline of a low one", func(j *Job) { j.Latest, j.Priority = at, work.Low }, -step},
		{"deadline of a high one", func(j *Job) { j.Latest, j.Priority = at.Add(time.Hour), work.High }, -step},
	} {
		if got := turn(x.change); (got - x.want).Abs() > time.Microsecond {
			t.Errorf("%s: %s after it came, wanted %s", x.name, got, x.want)
		}
	}
	short, long := turn(func(j *Job) { j.Length = time.Hour }), turn(func(j *Job) { j.Length = 2 * time.Hour })
	if 0 >= short || short >= long || long > most {
		t.Errorf("an hour stands back by %s, two by %s", short, long)
	}
}

func TestHeadStart(t *testing.T) {
	for _, x := range []struct {
		had, entitled, weight float64
		want                  time.Duration
	}{
		{0, 0.5, 0, Horizon / 2},
		{0.5, 0.5, 0, 0},
		{1, 0.5, 0, -Horizon / 2},
		{1, 0.1, 0, -Horizon / 2},
		{0, 0.5, 0.75, Horizon / 8},
		{0.25, 0.5, 0.5, Horizon / 8},
		{0, 0.5, 1, 0},
		{1, 0, 0, 0},
	} {
		if got := (Rules{}).HeadStart(x.had, x.entitled, x.weight); time.Duration(got) != x.want {
			t.Errorf("had %g of %g, weight of priority %g: got %s, wanted %s", x.had, x.entitled, x.weight, time.Duration(got), x.want)
		}
	}
}

// TestOrders: what the other orders look at, for comparisons.
func TestOrders(t *testing.T) {
	early := Job{Since: 1, Priority: work.Low, Length: 2 * time.Hour, Attained: 2 * time.Hour}
	late := Job{Since: 2, Priority: work.High, Length: time.Hour, Attained: time.Minute}
	for order, earlyFirst := range map[Order]bool{ByScore: false, ByArrival: true, ByShare: true, ByLength: false, ByAttained: false} {
		r := Rules{Order: order}
		if got := r.Turn(early, DefaultWeight) < r.Turn(late, DefaultWeight); got != earlyFirst {
			t.Errorf("order %d: the early, low, long one goes first: %v", order, got)
		}
	}
	r := Rules{Order: ByShare}
	if r.HeadStart(0.1, 0.5, 0.7) <= r.HeadStart(0.2, 0.5, 0.7) || r.HeadStart(0.2, 0.5, 0.7) <= r.HeadStart(0.2, 0.25, 0.7) {
		t.Error("by share, who has had less of what it is entitled to does not go first")
	}
}

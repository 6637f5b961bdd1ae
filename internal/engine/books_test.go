package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// desk is an engine to which the outside answers at once.
type desk struct {
	t   *testing.T
	e   *Engine
	now work.Time
}

// noon of a day: 12 hours before the next.
const noon = work.Time(20_000*24*time.Hour + 12*time.Hour)

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t, New(testConfig()), noon}
	d.do(SetPools{[]work.Pool{{Name: "main", Mode: work.Dynamic, TTL: -1}}})
	d.do(SetTenant{work.Tenant{Name: "a"}})
	d.do(SetTenant{work.Tenant{Name: "b"}})
	h := gpu.HostInfo{Name: "h0", CPUMilli: 64000, MemMiB: 512 << 10}
	for _, id := range []string{"GPU-0", "GPU-1", "GPU-2"} {
		h.GPUs = append(h.GPUs, gpu.GPUInfo{ID: id, Model: "H100-80GB"})
	}
	d.do(Inventory{Driver: "test", Hosts: []gpu.HostInfo{h}})
	return d
}

func (d *desk) do(ev Event) work.TaskID {
	d.t.Helper()
	out := d.e.Step(d.now, ev)
	if out.Err != nil {
		d.t.Fatalf("%T: %v", ev, out.Err)
	}
	id := out.Task
	for _, c := range append([]Command(nil), out.Commands...) {
		switch c := c.(type) {
		case CarveCmd:
			d.do(CarveDone{c.Owner, c.GPUIDs})
		case StartCmd:
			d.do(StartDone{c.Owner})
		case FreeCmd:
			d.do(FreeDone{c.Owner})
		case SuspendCmd:
			d.do(SuspendDone(c))
		case ResumeCmd:
			d.do(ResumeDone{c.Owner})
		case StopCmd:
			d.do(ProcessExited{c.Owner, work.Exit{Code: 143, Signal: "SIGTERM"}})
		}
	}
	if err := d.e.Check(); err != nil {
		d.t.Fatalf("after %T: %v", ev, err)
	}
	return id
}

func (d *desk) after(p time.Duration) *desk {
	d.now = d.now.Add(p)
	return d
}

func (d *desk) submit(tenant string, r work.Request) work.TaskID {
	d.t.Helper()
	return d.do(Submit{work.Spec{Tenant: tenant, Pool: "main", Request: r, Command: []string{"x"}, TTL: -1}})
}

// restart goes on with what a snapshot kept.
func (d *desk) restart() {
	d.t.Helper()
	b, err := d.e.Snapshot()
	if err != nil {
		d.t.Fatal(err)
	}
	if d.e, err = Restore(testConfig(), b); err != nil {
		d.t.Fatal(err)
	}
	d.do(Tick{})
}

// want compares the whole pool's days with those that are expected.
func (d *desk) want(days ...books.Day) {
	d.t.Helper()
	d.do(Tick{})
	if diff := cmp.Diff(days, d.e.Books(0, 1<<30)[0].Whole, cmpopts.EquateEmpty()); diff != "" {
		d.t.Errorf("the books (-want +got):\n%s", diff)
	}
}

// minutes of so many thousandths of a GPU.
func minutes(milli, n int64) int64 { return milli * n * 60_000 }

// TestBooksOfParking: ten minutes of a parked task are static's, and idle, and nobody holds
// them. A restart in between changes nothing.
func TestBooksOfParking(t *testing.T) {
	d := newDesk(t)
	id := d.submit("a", work.Request{GPUs: 1})
	d.after(time.Minute).do(Park{id, "ann"})
	d.after(4 * time.Minute).restart()
	d.after(6 * time.Minute).do(Wake{id, "ann"})
	d.after(2 * time.Minute).do(Cancel{id, "ann"})
	d.after(time.Hour).want(books.Day{
		Day:    20_000,
		Static: books.Amounts{books.Unknown: minutes(1000, 3), books.Idle: minutes(1000, 10)},
		Held:   books.Amounts{books.Unknown: minutes(1000, 3)},
		InUse:  minutes(1000, 3), PeakStatic: 1, PeakInUse: 1,
		Counts: books.Counts{Placed: 1, Woken: 1, Cancelled: 1, Moves: 1},
	})
}

// TestBooksOfSlices: what asks for a part would have a whole GPU at a static site. Two
// parts are on one GPU, beside a task that has two.
func TestBooksOfSlices(t *testing.T) {
	d := newDesk(t)
	d.submit("a", work.Request{Milli: 143})
	d.submit("b", work.Request{Milli: 286})
	d.submit("b", work.Request{GPUs: 2})
	d.after(10 * time.Minute)
	d.want(books.Day{
		Day: 20_000, Static: books.Amounts{minutes(4000, 10)}, Held: books.Amounts{minutes(143+286+2000, 10)},
		InUse: minutes(3000, 10), PeakStatic: 4, PeakInUse: 3, Counts: books.Counts{Placed: 3},
	})
	pool := d.e.Books(0, 1<<30)[0]
	if len(pool.Tenants) != 2 || pool.Tenants[0].Tenant != "a" || pool.Tenants[0].Days[0].Held.Sum() != minutes(143, 10) ||
		pool.Tenants[1].Days[0].Static.Sum() != minutes(3000, 10) || pool.Tenants[0].Days[0].InUse != 0 {
		t.Errorf("tenants: %+v", pool.Tenants)
	}
}

// TestBooksOverMidnight: nothing happens at midnight, and each day gets its part, also when
// the server slept for days.
func TestBooksOverMidnight(t *testing.T) {
	d := newDesk(t)
	id := d.submit("a", work.Request{GPUs: 1})
	queued := d.submit("a", work.Request{GPUs: 3})
	d.after(12*time.Hour + 5*time.Minute)
	unknown := func(day int, n int64) books.Day {
		x := books.Amounts{minutes(1000, n)}
		return books.Day{Day: day, Static: x, Held: x, InUse: minutes(1000, n), PeakStatic: 1, PeakInUse: 1}
	}
	first := unknown(20_000, 12*60)
	first.Placed = 1
	d.want(first, unknown(20_001, 5))
	d.after(48 * time.Hour).do(Cancel{id, "ann"})
	last := unknown(20_003, 5)
	last.Cancelled, last.Placed, last.WaitedMs = 1, 1, (60*time.Hour + 5*time.Minute).Milliseconds()
	d.want(first, unknown(20_001, 24*60), unknown(20_002, 24*60), last)
	d.do(Cancel{queued, "ann"})
	if got := d.e.Books(20_001, 20_002)[0].Whole; len(got) != 2 {
		t.Errorf("two days were asked for, got %+v", got)
	}
	d.after(books.Keep * 24 * time.Hour)
	if d.want(); len(d.e.Books(0, 1<<30)[0].Tenants) != 0 {
		t.Error("days are kept for longer than said")
	}
}

// TestBooksOfIdleness: what is judged idle was idle before, even yesterday; what nobody
// measured is unknown; what computes is neither.
func TestBooksOfIdleness(t *testing.T) {
	d := newDesk(t)
	d.after(12*time.Hour - time.Minute)
	id := d.submit("a", work.Request{Milli: 500})
	use := func(took time.Duration, compute float64) {
		d.after(took).do(Usage{[]UsageSample{{work.Owner{Task: id, Epoch: 1}, took, compute, 1000}}})
	}
	use(30*time.Second, 0.9)  // before it nobody knew: 30 s unknown, then busy
	use(20*time.Second, 0.9)  // 20 s busy
	use(100*time.Second, 0.0) // judged idle 90 s into the next day, and was since 10 s before it
	use(10*time.Second, 0.9)  // idle until it is seen to compute
	d.after(30 * time.Second).restart()
	d.after(30 * time.Second)
	static := func(unknown, idle, busy int64) books.Amounts {
		return books.Amounts{books.Unknown: unknown * 1_000_000, books.Idle: idle * 1_000_000, books.Busy: busy * 1_000_000}
	}
	held := func(a books.Amounts) (out books.Amounts) {
		milli := int64(d.e.Task(id).Lease().Parts[0].Milli())
		for k := range a {
			out[k] = a[k] * milli / 1000
		}
		return out
	}
	one, two := static(30, 10, 20), static(0, 100, 60)
	d.want(books.Day{Day: 20_000, Static: one, Held: held(one), InUse: one.Sum(), PeakStatic: 1, PeakInUse: 1, Counts: books.Counts{Placed: 1}},
		books.Day{Day: 20_001, Static: two, Held: held(two), InUse: two.Sum(), PeakStatic: 1, PeakInUse: 1})
}

// TestBooksOfOlder: a snapshot without books was written by an older gpupool; they begin
// with it, and what is held is in them.
func TestBooksOfOlder(t *testing.T) {
	d := newDesk(t)
	d.submit("a", work.Request{GPUs: 1})
	d.after(time.Hour).do(Tick{})
	b, err := d.e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if d.e, err = Restore(testConfig(), withoutBooks(t, b)); err != nil {
		t.Fatal(err)
	}
	d.after(time.Minute)
	x := books.Amounts{minutes(1000, 1)}
	d.want(books.Day{Day: 20_000, Static: x, Held: x, InUse: minutes(1000, 1), PeakStatic: 1, PeakInUse: 1})
	if got := d.e.Books(0, 1<<30)[0].Began; got != noon.Add(time.Hour) {
		t.Errorf("the books began at %v", got.Std())
	}
}

func withoutBooks(t *testing.T, b []byte) []byte {
	t.Helper()
	var s map[string]json.RawMessage
	if err := json.Unmarshal(b, &s); err != nil || s["books"] == nil {
		t.Fatalf("no books in the snapshot: %v", err)
	}
	delete(s, "books")
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

package placement

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

const endless = work.Time(math.MaxInt64)

// drawEnds draws when the tasks of a book end; some are not expected to.
func drawEnds(t *rapid.T, b *book) map[work.Owner]work.Time {
	ends := map[work.Owner]work.Time{}
	for _, o := range b.owners() {
		if ends[o] = work.Time(rapid.IntRange(0, 9).Draw(t, "end")); rapid.IntRange(0, 9).Draw(t, "endless") == 0 {
			ends[o] = endless
		}
	}
	return ends
}

func (b *book) owners() (out []work.Owner) {
	for o := range b.claims { // order: sorted below
		out = append(out, o)
	}
	slices.SortFunc(out, func(x, y work.Owner) int { return cmp.Compare(x.Task, y.Task) })
	return out
}

// bare reports whether someone holds CPU or memory without a GPU.
func (b *book) bare() bool {
	for _, k := range b.claims { // order: only a yes or no comes out
		if len(k.Parts[0].Slices) == 0 {
			return true
		}
	}
	return false
}

// holders is what Soonest asks.
type holders struct {
	b    *book
	ends map[work.Owner]work.Time
}

func (h holders) Until(o work.Owner) work.Time { return h.ends[task(o)] }

func (h holders) Part(o work.Owner) *work.Part { return &h.b.claims[task(o)].Parts[o.Member] }

// soonest lets one task after the other end and asks Find when it has a place.
func (b *book) soonest(q Query, now work.Time, ends map[work.Owner]work.Time) (work.Time, bool) {
	t := b.c.Try()
	defer t.Undo()
	left := b.owners()
	slices.SortStableFunc(left, func(x, y work.Owner) int { return cmp.Compare(ends[x], ends[y]) })
	at := now
	for {
		if len(left) == 0 || max(ends[left[0]], now) > at {
			if b.c.Find(q) != nil {
				return at, true
			}
			if len(left) == 0 {
				return 0, false
			}
			at = ends[left[0]]
		}
		for i, part := range b.claims[left[0]].Parts {
			t.Free(work.Owner{Task: left[0].Task, Epoch: 1, Member: i}, part)
		}
		left = left[1:]
	}
}

// TestSoonest: the time that is told is the one that letting everyone end finds; what
// is to be kept are sound GPUs, and once everyone has ended who ends by then, and with
// everything else kept by others, the request has its place there.
func TestSoonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBook(t)
		q := Query{Pool: "p", Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "who"), Request: drawRequest(t)}
		if q.Request.GPUs > 0 && rapid.Bool().Draw(t, "gang") {
			q.Request.Members = rapid.IntRange(2, 4).Draw(t, "members")
		}
		if q.Request.HostOnly() {
			q.Request.GPUs = 1
		}
		fed := q.Request.CPUMilli > 0 || q.Request.MemMiB > 0
		for _, g := range b.c.GPUs {
			if rapid.IntRange(0, 7).Draw(t, "ill") == 0 {
				b.c.SetHealth(g.Number, gpu.HealthSuspect, 0, "")
			}
		}
		if kept, ok := drawKept(t, b.c); ok && rapid.Bool().Draw(t, "keep") {
			kept.CPUMilli, kept.MemMiB = 0, 0
			b.c.Keep(kept)
		}
		ends := drawEnds(t, b)
		now := work.Time(rapid.IntRange(0, 3).Draw(t, "now"))
		before := b.c.dump()
		parts, at, ok := b.c.Soonest(q, now, holders{b, ends})
		if after := b.c.dump(); after != before {
			t.Fatalf("Soonest changed the cluster:\n%s\n%s", before, after)
		}
		want, can := b.soonest(q, now, ends)
		if fed { // of CPU and memory only what comes from tasks with GPUs is looked at, and that at the soonest
			if ok != can && can || ok && can && at > want && !b.bare() {
				t.Fatalf("Soonest(%+v) = %v at %d, %v, but letting everyone end it is %d, %v\n%s%v", q, parts, at, ok, want, can, before, ends)
			}
			return
		}
		if ok != can || at != want {
			t.Fatalf("Soonest(%+v) = %v at %d, %v, but letting everyone end it is %d, %v\n%s%v", q, parts, at, ok, want, can, before, ends)
		}
		if ok && at < endless {
			b.testKept(t, q, parts, at, ends)
		}
	})
}

// testKept lets everyone end by a time, keeps all other GPUs, and asks for the place.
func (b *book) testKept(t *rapid.T, q Query, parts []work.Part, at work.Time, ends map[work.Owner]work.Time) {
	t.Helper()
	seen := map[int]bool{}
	for _, p := range parts {
		for _, s := range p.Slices {
			if g := b.c.GPUs[s.GPU]; seen[s.GPU] || g.Host != p.Host || !b.c.Usable(s.GPU) {
				t.Fatalf("GPU %d may not be kept: %+v", s.GPU, parts)
			}
			seen[s.GPU] = true
		}
	}
	if len(parts) != q.Request.Count() {
		t.Fatalf("%d parts for %d members", len(parts), q.Request.Count())
	}
	for _, o := range b.owners() {
		if ends[o] <= at {
			for i, part := range b.claims[o].Parts {
				b.c.Free(work.Owner{Task: o.Task, Epoch: 1, Member: i}, part)
			}
		}
	}
	for _, g := range b.c.GPUs {
		if !seen[g.Number] && !g.Kept {
			b.c.Keep(work.Part{Host: g.Host, Slices: []work.Slice{{GPU: g.Number}}})
		}
	}
	if b.c.Find(q) == nil {
		t.Fatalf("%+v should fit at %d on %+v\n%s", q, at, parts, b.c.dump())
	}
	b.c.test(t, "keeping the others")
}

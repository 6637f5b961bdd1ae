package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/work"
)

// recount adds up a history anew, in the plainest way: it walks every lease for every
// stretch of time between two facts, and keeps all stretches until the end.
type recount struct {
	e         *Engine
	last      work.Time
	now       map[work.TaskID]stretch // what each task holds since last
	stretches []stretch
	peaks     map[string][2]int64 // by pool and day: static, in use
	inUse     map[string]int64
}

type stretch struct {
	task         work.TaskID
	pool, tenant string
	from, to     work.Time // from: since it is so, while it is in now
	static, held int64
	kind         books.Kind
}

func newRecount() *recount {
	return &recount{e: New(testConfig()), now: map[work.TaskID]stretch{}, peaks: map[string][2]int64{}, inUse: map[string]int64{}}
}

func (r *recount) add(at work.Time, f Fact) error {
	r.pass(at)
	if err := r.e.Replay(at, f); err != nil {
		return err
	}
	held := r.held()
	for id, x := range held {
		was, known := r.now[id]
		x.from = at
		if known && was.static == x.static && was.held == x.held && was.kind == x.kind {
			x.from = was.from
		}
		if j, is := f.(Judged); is && j.Task == id && x.kind == books.Idle && was.kind != books.Idle {
			x.from = max(j.Use.Since, was.from)
			r.turnIdle(id, x.from)
		}
		held[id] = x
	}
	r.now = held
	return nil
}

// pass closes the stretches that last until then.
func (r *recount) pass(at work.Time) {
	const day = 24 * time.Hour
	for r.last < at {
		end := min((r.last/work.Time(day)+1)*work.Time(day), at)
		static, gpus := map[string]int64{}, map[string]map[int]bool{}
		for _, x := range r.now {
			static[x.pool] += x.static / 1000
			x.from, x.to = r.last, end
			r.stretches = append(r.stretches, x)
		}
		for _, l := range r.e.Leases() {
			for _, p := range l.Parts {
				for _, s := range p.Slices {
					if pool := l.of.Spec.Pool; p.Phase != PhaseFreed && r.e.cluster.Hosts[p.Host].Up {
						if gpus[pool] == nil {
							gpus[pool] = map[int]bool{}
						}
						gpus[pool][s.GPU] = true
					}
				}
			}
		}
		took := int64(end)/1e6 - int64(r.last)/1e6
		for pool, n := range static {
			key := fmt.Sprint(pool, " ", int64(r.last)/int64(day))
			if took > 0 {
				r.peaks[key] = [2]int64{max(r.peaks[key][0], n), max(r.peaks[key][1], int64(len(gpus[pool])))}
				r.inUse[key] += 1000 * took * int64(len(gpus[pool]))
			}
		}
		r.last = end
	}
}

func (r *recount) turnIdle(id work.TaskID, since work.Time) {
	var cut []stretch
	for i := range r.stretches {
		x := &r.stretches[i]
		if x.task != id || x.to <= since {
			continue
		}
		if x.from < since {
			before := *x
			before.to = since
			cut = append(cut, before)
			x.from = since
		}
		x.kind = books.Idle
	}
	r.stretches = append(r.stretches, cut...)
}

// held walks all leases.
func (r *recount) held() map[work.TaskID]stretch {
	out := map[work.TaskID]stretch{}
	for _, l := range r.e.Leases() {
		t := r.e.Task(l.Task)
		whole := t.Spec.Request.WholeGPUs().GPUs
		for _, p := range l.Parts {
			if p.Phase == PhaseFreed || !r.e.Hosts()[p.Host].Up || whole == 0 {
				continue
			}
			x := out[t.ID]
			x.task, x.pool, x.tenant = t.ID, t.Spec.Pool, t.Spec.Tenant
			x.static += int64(1000 * whole)
			x.held += int64(p.Milli())
			x.kind = kindFor(t)
			out[t.ID] = x
		}
	}
	return out
}

func kindFor(t *Task) books.Kind {
	if l := t.Lease(); l != nil {
		switch l.Parts[0].Phase {
		case PhaseSuspending, PhaseVacating, PhaseParked:
			if t.Awake {
				return books.Unknown
			}
			return books.Idle
		}
		switch t.Use.Kind {
		case elastic.Idle:
			return books.Idle
		case elastic.Light, elastic.Steady, elastic.Hot:
			return books.Busy
		}
	}
	return books.Unknown
}

// same compares an engine's books with what was counted.
func (r *recount) same(e *Engine) error {
	r.pass(e.Now())
	want := map[string]books.Day{} // by pool, tenant and day
	for _, x := range r.stretches {
		ms, day := int64(x.to)/1e6-int64(x.from)/1e6, int64(x.from)/int64(24*time.Hour)
		for _, tenant := range []string{"", x.tenant} {
			key := fmt.Sprint(x.pool, "/", tenant, " ", day)
			d := want[key]
			d.Static[x.kind] += x.static * ms
			d.Held[x.kind] += x.held * ms
			want[key] = d
		}
	}
	for _, p := range e.lines {
		of := map[string][]books.Day{"": p.books.whole.UpTo(e.now)}
		for name, a := range p.books.tenants {
			of[name] = a.UpTo(e.now)
		}
		for name, days := range of {
			for _, d := range days {
				key := fmt.Sprint(p.Name, "/", name, " ", d.Day)
				w := want[key]
				delete(want, key)
				pool := fmt.Sprint(p.Name, " ", d.Day)
				if d.Static != w.Static || d.Held != w.Held || name == "" && (d.InUse != r.inUse[pool] || [2]int64{d.PeakStatic, d.PeakInUse} != r.peaks[pool]) {
					return fmt.Errorf("%s: the books say %+v; counted anew it is %+v, in use %d, peaks %v", key, d, w, r.inUse[pool], r.peaks[pool])
				}
			}
		}
	}
	for key, d := range want {
		if (d.Static != books.Amounts{}) {
			return fmt.Errorf("%s: the books say nothing; counted anew it is %+v", key, d)
		}
	}
	return nil
}

// recounted plays a history that passes a midnight and counts its facts anew.
func recounted(seed uint64, p plant) error {
	w := newWorld(seed)
	w.now = work.Time(20_000*24*time.Hour - 4*time.Minute)
	w.keep, w.blind = true, true
	if p != nil {
		w.e.tamper = p(w.e)
	}
	err := w.setUp()
	for i := 0; i < 120 && err == nil; i++ {
		err = w.step(w.randomEvent())
	}
	if err != nil {
		return err
	}
	r := newRecount()
	for _, b := range slices.Clone(w.facts) {
		at, f, err := Decode([]byte(b))
		if err != nil {
			return err
		}
		if err := r.add(at, f); err != nil {
			return err
		}
	}
	return r.same(w.e)
}

package storm

import (
	"bytes"
	"context"
	"hash/fnv"
	"slices"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// server is one life of the server, from its start to its crash: the writer, and, in the
// place of goroutines, what is under way. It keeps to the rules of a host: facts first, then
// replies and commands; commands for one owner one after another; what comes from one place
// arrives in order.
type server struct {
	writer   *host.Writer
	twin     *engine.Engine // gets the same events, and must decide the same
	hands    *host.Hands
	lanes    []*lane
	inbox    []mail
	watching map[work.Owner]bool
}

// lane is the commands for one owner that are not carried out yet. The first is under way.
type lane struct {
	owner  work.Owner
	todo   []engine.Command
	answer engine.Event // the first was carried out, but nobody has heard of it
	done   bool
}

// mail is an event on its way to the writer.
type mail struct {
	from string // what comes from one place stays in order
	ev   engine.Event
	sent work.Time
}

// call is an event with someone who waits for its reply.
type call struct {
	ev      engine.Event
	replied func(host.Reply) error // nil: nobody
}

// restart lets a new server recover.
func (w *world) restart() error {
	ctx := context.Background()
	writer, err := host.Recover(ctx, w.cfg, w.disk, w.every)
	if err != nil {
		return broke("recovery", "%v", err)
	}
	twin, err := host.Recover(ctx, w.cfg, w.disk, 0)
	if err != nil {
		return broke("recovery", "%v", err)
	}
	s := &server{writer: writer, twin: twin.Engine, watching: map[work.Owner]bool{}}
	s.hands = host.NewHands(w.hostOf, w.watch)
	w.srv = s
	if err := w.ledger.Add(writer.Engine, nil); err != nil { // the time of its last fact
		return broke("replay", "%v", err)
	}
	if err := w.same(); err != nil {
		return err
	}
	if w.script != nil {
		w.script.restarted()
	}
	var owners []work.Owner
	seen, _ := w.machines.List(ctx)
	for _, st := range seen {
		owners = append(owners, host.OwnerOf(st.ID))
	}
	w.post("start", engine.Resume{})
	w.post("start", engine.ProcessesSeen{Owners: owners})
	return w.nothingLost()
}

// same compares what the journal gives with the state, byte for byte.
func (w *world) same() error {
	if w.bug.blind {
		return nil
	}
	if err := w.ledger.Same(w.srv.writer.Engine); err != nil {
		return broke("replay", "%v", err)
	}
	return nil
}

// crash ends the server at once. What is under way happened, or did not; nobody hears of it.
func (w *world) crash() {
	s := w.srv
	w.srv = nil
	for _, l := range s.lanes {
		if l.done || len(l.todo) == 0 {
			continue
		}
		if w.reachable(l.todo[0]) && w.chance(50) {
			w.fault("command_done_unheard")
			w.carry(s, l.todo[0])
			continue
		}
		w.fault("command_lost")
		w.note("the server dies before it carried out %T %+v", l.todo[0], l.todo[0])
	}
}

func (w *world) post(from string, ev engine.Event) {
	w.srv.inbox = append(w.srv.inbox, mail{from, ev, w.now})
}

// watch reports the end of a member, once.
func (w *world) watch(o work.Owner) {
	if w.srv != nil {
		w.srv.watching[o] = true
		w.report()
	}
}

// report sends the ends of members that are watched and can be reached.
func (w *world) report() {
	if w.srv == nil || w.cutOff[1] {
		return
	}
	for _, o := range sorted(keys(w.srv.watching)) {
		id := runner.ID{Task: uint64(o.Task), Epoch: o.Epoch, Member: o.Member}
		if m := w.machines.known(id); m != nil && (m.runs() || w.away[m.host]) {
			continue
		}
		st, err := w.machines.Wait(context.Background(), id)
		if err != nil {
			panic(err)
		}
		delete(w.srv.watching, o)
		w.post("watch "+o.String(), host.Ended(st))
	}
}

func keys(m map[work.Owner]bool) (out []work.Owner) {
	for o := range m { // order: sorted by whoever calls
		out = append(out, o)
	}
	return out
}

// apply hands events to the writer together, and does with the outcome what a host does.
func (w *world) apply(calls ...call) error {
	s := w.srv
	evs := make([]engine.Event, len(calls))
	w.resuming, w.returning = false, false
	for i, c := range calls {
		evs[i] = c.ev
		w.note("step %d, %s: %T %+v", w.steps, w.clock().Sub(begins), c.ev, c.ev)
		if w.script != nil {
			w.script.event(w.clock(), c.ev)
		}
		switch c.ev.(type) {
		case engine.Resume:
			w.resuming = true
		case engine.Inventory:
			w.returning = true
		}
	}
	fate := w.disk.next
	b, err := s.writer.Apply(context.Background(), w.clock(), evs...)
	if err := w.heard(s, evs); err != nil {
		return err
	}
	if err != nil {
		w.fault(fateNames[fate])
		return w.failed(calls, err)
	}
	if b.Unsaved != nil {
		w.fault(fateNames[noSnap])
	}
	if err := w.leave(calls, b); err != nil {
		return err
	}
	if w.disk.lied { // a planted bug: all that left before the append failed
		w.disk.lied = false
		w.crash()
	}
	return nil
}

// failed ends a server whose journal failed: who waits is told that nothing is certain.
func (w *world) failed(calls []call, err error) error {
	w.crash()
	for _, c := range calls {
		if c.replied != nil {
			if err := c.replied(host.Reply{Err: work.Errorf(work.CodeUnavailable, "%s", err)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave lets replies and commands go.
func (w *world) leave(calls []call, b host.Batch) error {
	for i, c := range calls {
		if c.replied != nil {
			if err := c.replied(b.Replies[i]); err != nil {
				return err
			}
		}
	}
	for _, c := range b.Commands {
		w.command(c)
	}
	return nil
}

// command puts a command into its owner's lane.
func (w *world) command(c engine.Command) {
	s := w.srv
	w.note("    > %T %+v", c, c)
	if w.bug.order != nil {
		if c = w.bug.order(w, c); c == nil {
			return
		}
	}
	o, has := host.LaneOf(c)
	if !has {
		return
	}
	if i := slices.IndexFunc(s.lanes, func(l *lane) bool { return l.owner == o }); i >= 0 {
		s.lanes[i].todo = append(s.lanes[i].todo, c)
		if w.bug.unordered {
			slices.Reverse(s.lanes[i].todo)
		}
		return
	}
	s.lanes = append(s.lanes, &lane{owner: o, todo: []engine.Command{c}})
}

// heard lets the ledger see what the disk holds of the last append, and checks everything.
func (w *world) heard(s *server, evs []engine.Event) error {
	e := s.writer.Engine
	var facts []engine.Fact
	for _, rec := range w.disk.take() {
		_, f, err := engine.Decode(rec)
		if err != nil {
			return broke("replay", "%v", err)
		}
		facts = append(facts, f)
		w.kinds[f.Kind()]++
		w.note("    + %s", rec)
		h := fnv.New64a()
		h.Write(rec)
		w.digest = w.digest*31 + h.Sum64()
	}
	w.facts += len(facts)
	if err := w.sameDecisions(s, evs); err != nil {
		return err
	}
	if err := w.ledger.Add(e, facts); err != nil {
		return broke("doubled", "%v", err)
	}
	if err := e.Check(); err != nil {
		return broke("invariant", "after %T: %v", evs[0], err)
	}
	if err := w.truths(e, facts); err != nil {
		return err
	}
	if len(facts) > 0 && w.facts/compareEvery != (w.facts-len(facts))/compareEvery {
		return w.same()
	}
	return nil
}

// compareEvery is how many facts there are between two comparisons of whole states; there is
// one after each crash too.
const compareEvery = 8

// sameDecisions gives the same events to the twin: it decides the same.
func (w *world) sameDecisions(s *server, evs []engine.Event) error {
	n, tried := 0, w.disk.tried
	w.disk.tried = nil
	for _, ev := range evs {
		for _, f := range s.twin.Step(w.clock(), ev).Facts {
			b, err := engine.Encode(s.twin.Now(), f)
			if err != nil {
				return err
			}
			if n >= len(tried) || !bytes.Equal(b, tried[n]) {
				was := "nothing"
				if n < len(tried) {
					was = string(tried[n])
				}
				return broke("undecided", "the same events gave other facts after %T: %s and %s", ev, was, b)
			}
			n++
		}
	}
	if n != len(tried) {
		return broke("undecided", "the same events gave %d facts and %d", len(tried), n)
	}
	return nil
}

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// kindGap is the kind of an event that stands for those that are no longer kept.
const kindGap = "gap"

func (s *server) eventRoutes() {
	register(s, op{id: "events", method: get, path: "/v1/events", tag: "events", streams: "text/event-stream",
		says: "Follow what happens",
		more: "Server-sent events: the id is the number of the fact, the event its kind, the data an Event. The kind gap says that facts after the asked one are no longer kept."}, s.events)
	s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[apitype.Event](), true, "Event") // documents the data of the stream
}

type eventQuery struct {
	After string `query:"after" maxLength:"20" doc:"Go on after this number, as far as facts are kept; from now on if left out"`
	Last  string `header:"Last-Event-ID" maxLength:"20" doc:"As after, which it wins over: sent by clients that connect again"`
	Task  uint64 `query:"task" doc:"Only about this task"`
}

// after is the number to go on after.
func (q *eventQuery) after(now uint64) (uint64, error) {
	text := q.After
	if q.Last != "" {
		text = q.Last
	}
	if text == "" {
		return now, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, work.Errorf(work.CodeInvalid, "event number %q is not understood: expected the id of an earlier event", text)
	}
	return n, nil
}

func (s *server) events(ctx context.Context, in *eventQuery) (*huma.StreamResponse, error) {
	newest := s.host.LastEvent()
	after, err := in.after(newest)
	if err != nil {
		return nil, err
	}
	if in.Task > 0 {
		if err := s.look(ctx, work.TaskID(in.Task), func(view, *engine.Task) {}); err != nil {
			return nil, err
		}
	}
	return streamTo("text/event-stream", func(w stream) error {
		t := &teller{s: s, c: who(ctx), task: work.TaskID(in.Task), out: w, seen: after}
		return t.tell(ctx, newest)
	}), nil
}

// teller tells one client what happens.
type teller struct {
	s    *server
	c    caller
	task work.TaskID // 0 = any
	out  stream
	seen uint64 // number of the newest fact that was told or passed over
	buf  bytes.Buffer
}

// tell runs until the client leaves, its token is revoked, it falls behind, or the
// host ends. In every case the client may connect again and go on.
func (t *teller) tell(ctx context.Context, newest uint64) error {
	backlog, next, stop := t.s.host.Subscribe(t.seen)
	defer stop()
	oldest := newest + 1 // of what is kept
	if len(backlog) > 0 {
		oldest = backlog[0].Seq
	}
	if oldest > t.seen+1 {
		t.gap(oldest)
	}
	for _, ev := range backlog {
		t.add(ev)
	}
	if err := t.send(); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			if !t.s.valid(t.c) {
				return nil
			}
		case ev, ok := <-next:
			if !ok {
				return nil
			}
			t.add(ev)
			for range len(next) { // what waits already goes out in the same write
				if ev, ok := <-next; ok {
					t.add(ev)
				}
			}
			if t.buf.Len() == 0 {
				continue // nothing in it for this client
			}
		}
		if err := t.send(); err != nil {
			return err
		}
	}
}

// add writes a fact into the buffer if it is for this client.
func (t *teller) add(ev host.Event) {
	t.seen = ev.Seq
	if t.task > 0 && ev.Task != t.task || !t.c.all() && (ev.Task == 0 || !t.c.owns(ev.Tenant)) {
		return
	}
	t.write(apitype.Event{Seq: ev.Seq, At: ev.At.Std(), Kind: ev.Fact.Kind(), Task: uint64(ev.Task), Tenant: ev.Tenant, Fact: shown(ev.Fact, t.c)})
}

// gap tells that facts before oldest are missing.
func (t *teller) gap(oldest uint64) {
	t.write(apitype.Event{Seq: oldest - 1, At: time.Now().UTC(), Kind: kindGap, Fact: map[string]string{
		"message": fmt.Sprintf("facts %d to %d are no longer kept", t.seen+1, oldest-1)}})
	t.seen = oldest - 1
}

func (t *teller) write(ev apitype.Event) {
	data, err := json.Marshal(ev)
	if err != nil {
		t.s.log.Error("an event cannot be written", "seq", ev.Seq, "err", err)
		return
	}
	fmt.Fprintf(&t.buf, "id: %d\nevent: %s\ndata: %s\n\n", ev.Seq, ev.Kind, data)
}

// send sends what is buffered, and always where the client stands, so that it goes
// on from there however much was passed over.
func (t *teller) send() error {
	fmt.Fprintf(&t.buf, ": \nid: %d\n\n", t.seen)
	_, err := t.out.Write(t.buf.Bytes())
	t.buf.Reset()
	return err
}

// shown is a fact without what nobody should see: the environment of a task, which
// may hold secrets, and the hashes of tokens; and without what is not the caller's.
func shown(f engine.Fact, c caller) engine.Fact {
	switch f := f.(type) {
	case engine.Submitted:
		spec := *f.Spec
		spec.Env = nil
		f.Spec = &spec
		return f
	case engine.TenantSet:
		f.Tenant.Tokens = nil
		return f
	case engine.TokenSet:
		f.Token.Hash, f.Token.Old = "", ""
		return f
	case engine.Reserved:
		if !c.all() {
			f.Victims = nil // tasks of others
		}
		return f
	case engine.Planned:
		if !c.all() {
			f.Plan.For = 0 // may be a task of another; the reason says what can be said
		}
		return f
	}
	return f
}

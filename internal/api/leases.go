package api

import (
	"context"
	"fmt"
	"strconv"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) leaseRoutes() {
	const tag = "leases"
	register(s, op{id: "create-lease", method: post, path: "/v1/leases", says: "Ask for slices to use from outside", tag: tag, status: 201}, s.createLease)
	register(s, op{id: "list-leases", method: get, path: "/v1/leases", says: "List leases by number", tag: tag}, s.listLeases)
	register(s, op{id: "get-lease", method: get, path: "/v1/leases/{id}", says: "Show a lease, and wait until it is held or has ended", tag: tag}, s.getLease)
	register(s, op{id: "renew-lease", method: post, path: "/v1/leases/{id}/renew", says: "Keep a lease for another TTL", tag: tag}, s.renewLease)
	register(s, op{id: "release-lease", method: del, path: "/v1/leases/{id}", says: "Give a lease back, or stop waiting for it", tag: tag}, s.releaseLease)
}

func (s *server) createLease(ctx context.Context, in *struct {
	KeyHeader
	TraceHeader
	Body apitype.LeaseSpec
}) (*answer[apitype.Lease], error) {
	spec, err := in.Body.Work()
	if err != nil {
		return nil, err
	}
	spec.Trace = in.trace()
	out := &answer[apitype.Lease]{}
	id, err := s.submit(ctx, spec, in.Key, func(v view, t *engine.Task) { out.Body = v.wholeLease(t) })
	if err != nil {
		return nil, err
	}
	out.Location = fmt.Sprintf("/v1/leases/%d", id)
	return out, nil
}

// lookLease reads one lease of an outside client that the caller may see.
func (s *server) lookLease(ctx context.Context, id work.TaskID, f func(view, *engine.Task)) error {
	external := false
	err := s.look(ctx, id, func(v view, t *engine.Task) {
		if external = t.Spec.External(); external {
			f(v, t)
		}
	})
	if err == nil && external {
		return nil
	}
	return work.Errorf(work.CodeNotFound, "lease %d is not known; ended leases are forgotten after a while", id)
}

func (s *server) showLease(ctx context.Context, id work.TaskID) (out apitype.Lease, err error) {
	err = s.lookLease(ctx, id, func(v view, t *engine.Task) { out = v.wholeLease(t) })
	return out, err
}

// wholeLease is a lease with the reason why it waits.
func (v view) wholeLease(t *engine.Task) apitype.Lease {
	out := v.lease(t)
	if t.State == work.Queued {
		out.Reason = reason(v.Why(t))
	}
	return out
}

func (s *server) listLeases(ctx context.Context, in *struct {
	PageQuery
	State []string `query:"state,explode" doc:"As for tasks; active if left out"`
}) (*answer[apitype.Page[apitype.Lease]], error) {
	if len(in.State) == 0 {
		in.State = []string{activeState}
	}
	wanted, err := states(in.State)
	if err != nil {
		return nil, err
	}
	q := &taskQuery{PageQuery: in.PageQuery}
	use := s.usage()
	var items []apitype.Lease
	s.host.Read(func(e *engine.Engine) {
		err = q.walk(e.Tasks(), func(t *engine.Task) bool {
			if t.Spec.External() && who(ctx).owns(t.Spec.Tenant) && q.matches(t, wanted) {
				items = append(items, view{e, use}.lease(t))
			}
			return len(items) <= in.Limit
		})
	})
	if err != nil {
		return nil, err
	}
	return pageOf(items, in.Limit, func(l apitype.Lease) string { return strconv.FormatUint(l.ID, 10) }), nil
}

func (s *server) getLease(ctx context.Context, in *struct {
	IDPath
	WaitQuery
}) (*answer[apitype.Lease], error) {
	id := work.TaskID(in.ID)
	if err := s.lookLease(ctx, id, func(view, *engine.Task) {}); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, id, in.WaitQuery, begun); err != nil {
		return nil, err
	}
	return answerOf(s.showLease(ctx, id))
}

func (s *server) renewLease(ctx context.Context, in *struct {
	IDPath
	Body apitype.Renewal
}) (*answer[apitype.Lease], error) {
	id := work.TaskID(in.ID)
	if err := s.lookLease(ctx, id, func(view, *engine.Task) {}); err != nil {
		return nil, err
	}
	if _, err := s.host.Do(ctx, engine.Renew{Task: id, Epoch: in.Body.Epoch}); err != nil {
		return nil, err
	}
	return answerOf(s.showLease(ctx, id))
}

func (s *server) releaseLease(ctx context.Context, in *struct {
	IDPath
	Epoch uint32 `query:"epoch" doc:"Of what is given back; needed once it is held"`
}) (*answer[apitype.Lease], error) {
	id := work.TaskID(in.ID)
	var ev engine.Event
	err := s.lookLease(ctx, id, func(_ view, t *engine.Task) {
		switch {
		case in.Epoch > 0 && t.Lease() != nil:
			ev = engine.Release{Task: id, Epoch: in.Epoch}
		case in.Epoch > 0 || !begun(t) || t.State.Terminal(): // an ended one is refused by the engine
			ev = engine.Cancel{Task: id, By: who(ctx).String()}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case ev == nil:
		return nil, work.Errorf(work.CodeInvalid, "lease %d is held: name its epoch, so that nothing newer is given back by mistake", id)
	}
	if _, err := s.host.Do(ctx, ev); err != nil {
		return nil, err
	}
	return answerOf(s.showLease(ctx, id))
}

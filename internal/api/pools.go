package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

func (s *server) poolRoutes() {
	const tag = "pool"
	register(s, op{id: "whoami", method: get, path: "/v1/whoami", says: "Say who the token belongs to, and what the server is", tag: tag}, s.whoami)
	register(s, op{id: "list-hosts", method: get, path: "/v1/hosts", says: "List hosts", tag: tag}, s.listHosts)
	register(s, op{id: "list-gpus", method: get, path: "/v1/gpus", says: "List GPUs and what stands on them", tag: tag}, s.listGPUs)
	register(s, op{id: "get-gpu", method: get, path: "/v1/gpus/{gpu}", says: "Show a GPU and what stands on it", tag: tag}, s.getGPU)
	s.healthRoutes(tag)
	register(s, op{id: "get-map", method: get, path: "/v1/map", says: "Show every GPU and what stands on it at once, in a compact form", tag: tag}, s.getMap)
	register(s, op{id: "list-pools", method: get, path: "/v1/pools", says: "List pools in their order", tag: tag}, s.listPools)
}

func (s *server) whoami(ctx context.Context, _ *struct{}) (*answer[apitype.Self], error) {
	c := who(ctx)
	out := apitype.Self{Role: string(c.Role), Tenant: c.Tenant, ReadOnly: c.readOnly, ID: c.ID, Name: c.Name, How: string(c.Kind), Version: s.cfg.Version, Hardware: s.cfg.Hardware}
	if !c.Expires.IsZero() {
		out.Expires = &c.Expires
	}
	return answerOf(out, nil)
}

// from skips the first n items.
func from[T any](items []T, n uint64) []T {
	return items[min(n, uint64(len(items))):]
}

func (s *server) listHosts(_ context.Context, in *PageQuery) (*answer[apitype.Page[apitype.Host]], error) {
	first, err := in.first()
	if err != nil {
		return nil, err
	}
	var items []apitype.Host
	s.host.Read(func(e *engine.Engine) {
		for _, h := range from(e.Hosts(), first) {
			if items = append(items, view{Engine: e}.host(h.Number)); len(items) > in.Limit {
				break
			}
		}
	})
	last := first + uint64(in.Limit) - 1 // hosts are numbered from 0 without a gap
	return pageOf(items, in.Limit, func(apitype.Host) string { return strconv.FormatUint(last, 10) }), nil
}

func (s *server) listGPUs(ctx context.Context, in *struct {
	PageQuery
	Host   string `query:"host" maxLength:"256"`
	Pool   string `query:"pool" maxLength:"128"`
	Health string `query:"health" enum:"ok,suspect,cordoned,draining,drained,broken"`
}) (*answer[apitype.Page[apitype.GPU]], error) {
	first, err := in.first()
	if err != nil {
		return nil, err
	}
	use := s.usage()
	var items []apitype.GPU
	s.host.Read(func(e *engine.Engine) {
		for _, g := range from(e.GPUs(), first) {
			h := e.Hosts()[g.Host]
			if in.Host != "" && in.Host != h.Info.Name || in.Pool != "" && in.Pool != h.Pool || in.Health != "" && in.Health != string(g.Health) {
				continue
			}
			if items = append(items, view{e, use}.gpu(g.Number, who(ctx))); len(items) > in.Limit {
				break
			}
		}
	})
	return pageOf(items, in.Limit, func(g apitype.GPU) string { return strconv.Itoa(g.GPU) }), nil
}

func (s *server) listPools(ctx context.Context, in *PageQuery) (*answer[apitype.Page[apitype.Pool]], error) {
	first, err := in.first()
	if err != nil {
		return nil, err
	}
	var items []apitype.Pool
	s.host.Read(func(e *engine.Engine) { items = from(pools(e, who(ctx)), first) })
	last := first + uint64(in.Limit) - 1
	return pageOf(items, in.Limit, func(apitype.Pool) string { return strconv.FormatUint(last, 10) }), nil
}

// accepted is up to how many waiting tasks a pool takes normal and low priority; nil = any.
func accepted(p work.Pool) (normal, low *int) {
	if p.Capacity > 0 {
		n := int(float64(p.Capacity) * p.BackPressure)
		normal, low = &n, &n
	}
	if p.AskAt > 0 && (low == nil || p.AskAt < *low) {
		low = &p.AskAt
	}
	return normal, low
}

func loan(d engine.Debt) apitype.Loan {
	x := apitype.Loan{Borrower: d.Borrower, GPUs: float64(d.Milli) / 1000, GPUHours: float64(d.GPUMs) / 3.6e6, Loans: d.Loans, Called: d.Called, LongestS: d.Longest.Seconds()}
	if d.Called > 0 {
		x.MeanS = d.Took.Seconds() / float64(d.Called)
	}
	return x
}

// pools counts what each pool has and who is in it.
func pools(e *engine.Engine, c caller) []apitype.Pool {
	var out []apitype.Pool
	index := map[string]int{}
	for i, p := range e.Pools() {
		index[p.Name] = i
		x := apitype.Pool{Name: p.Name, Mode: string(p.InForce), Waiting: p.Waiting, Idle: p.Idle, Parked: p.Parked, Capacity: p.Capacity,
			BorrowFrom: slices.Clone(p.BorrowFrom), Reserve: p.ReserveGPUs, LendGPUs: p.LendGPUs}
		x.NormalUpTo, x.LowUpTo = accepted(p.Pool)
		if p.TTL > 0 {
			x.TTL = work.FormatDuration(p.TTL)
		}
		modes(&x, p, c)
		out = append(out, x)
	}
	for _, d := range e.Debts() {
		if i, ok := index[d.Lender]; ok {
			out[i].Lent = append(out[i].Lent, loan(d))
		}
	}
	milli := make([]int, len(out))
	for _, h := range e.Hosts() {
		i, ok := index[h.Pool]
		if !ok {
			continue
		}
		out[i].Hosts++
		for _, n := range h.GPUs {
			g := e.GPUs()[n]
			usable := h.Up && !h.Cordoned && g.Health == gpu.HealthOK
			out[i].GPUs++
			milli[i] += g.Milli
			switch {
			case !usable:
				out[i].Unusable++
				if g.Health.Out() && g.Health != gpu.HealthBroken {
					out[i].Cordoned++
				}
			case len(g.Held) == 0:
				out[i].FreeGPUs++
			}
		}
	}
	for _, l := range e.Leases() {
		t := e.Task(l.Task)
		if i, ok := index[t.Spec.Pool]; ok && t.Epoch == l.Epoch && t.Lease() != nil {
			out[i].Running++
		}
	}
	for i := range out {
		p := &out[i]
		p.HeldGPUs = float64(milli[i]) / 1000
		switch {
		case p.Hosts == 0:
			p.Warning = "it has no hosts"
		case p.GPUs < work.PoolSizeLow || p.GPUs > work.PoolSizeHigh:
			p.Warning = fmt.Sprintf("it has %d GPUs; %d to %d are recommended", p.GPUs, work.PoolSizeLow, work.PoolSizeHigh)
		}
	}
	return out
}

package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// demands turns the tasks of a trace into submissions to the simulated cluster, one
// at a time: a million at once would be a third of a gigabyte.
//
// A task with more GPUs than the largest host is split into equal members that
// fill hosts evenly. A fraction may be served in whichever way takes less of a
// GPU (isolation any). Where the trace names GPU models that the cluster has
// none of, as when it is replayed on another kind of GPU, the names are dropped.
type demands struct {
	tasks []trace.Task
	most  int // GPUs of the largest host
	have  map[string]bool
	pools map[string]bool
	first string // pool of tasks that name none, or one that is not there
}

func newDemands(t *trace.Trace, hosts []gpu.HostInfo, pools []work.Pool) (*demands, error) {
	for i := range t.Tasks {
		if _, err := work.ParsePriority(t.Tasks[i].Priority); err != nil {
			return nil, fmt.Errorf("trace %s, task %d: %w", t.Name, i+1, err)
		}
	}
	d := &demands{tasks: t.Tasks, have: map[string]bool{}, pools: map[string]bool{}, first: poolName}
	for i := range pools {
		d.pools[pools[i].Name] = true
	}
	if len(pools) > 0 {
		d.first = pools[0].Name
	}
	for _, h := range hosts {
		d.most = max(d.most, len(h.GPUs))
		for _, g := range h.GPUs {
			d.have[g.Model] = true
		}
	}
	return d, nil
}

func (d *demands) spec(i int, s *work.Spec) {
	x := &d.tasks[i]
	pr, _ := work.ParsePriority(x.Priority) // newDemands has seen it
	*s = work.Spec{Name: x.Name, Tenant: tenantOf(x), Pool: d.first, Priority: pr, Class: work.Class(x.Class), Request: d.request(x), Command: replayed, TTL: -1}
	if x.Grace > 0 {
		s.Grace, s.OnResize = x.Grace, work.ResizeRestart
	}
	if d.pools[x.Pool] {
		s.Pool = x.Pool
	}
}

func (d *demands) request(x *trace.Task) work.Request {
	r := work.Request{GPUs: x.GPUs, Milli: x.Milli, GPUMemMiB: x.GPUMemoryMiB, CPUMilli: x.CPUMilli, MemMiB: x.MemoryMiB}
	if r.IsPart() {
		r.Isolation = work.IsolationAny
	}
	for _, m := range x.Models {
		if d.have[m] {
			r.Models = append(r.Models, m)
		}
	}
	if r.GPUs > d.most && d.most > 0 {
		each := perMember(r.GPUs, d.most)
		r.GPUs, r.Members = each, r.GPUs/each
	}
	return r
}

func tenantOf(x *trace.Task) string { return cmp.Or(x.Tenant, "default") }

var replayed = []string{"replay"}

// perMember is the largest number of GPUs that divides both the task and a host,
// so that members fill hosts without a rest.
func perMember(task, host int) int {
	for n := host; n > 1; n-- {
		if task%n == 0 && host%n == 0 {
			return n
		}
	}
	return 1
}

// asked is what a task asks for in thousandths of GPUs, whatever it is given. A
// request for memory alone counts as its share of the memory of the cluster's
// first GPU model.
func asked(r work.Request, memMiB int64) int64 {
	each := int64(r.GPUs)*1000 + int64(r.Milli)
	if each == 0 && r.GPUMemMiB > 0 && memMiB > 0 {
		each = min((r.GPUMemMiB*1000+memMiB-1)/memMiB, 1000)
	}
	return each * int64(r.Count())
}

// GPUSeconds is what a trace asks for in all: GPUs times how long they are asked for. A
// request for memory alone counts as its share of the memory of the hosts' first GPU.
func GPUSeconds(t *trace.Trace, hosts []gpu.HostInfo) float64 {
	sum := 0.0
	for _, r := range demandRows(t, hosts) {
		sum += r.milli / 1000 * (r.end - r.submit)
	}
	return sum
}

func tenantsOf(t *trace.Trace) []string {
	seen := map[string]bool{}
	var out []string
	for i := range t.Tasks {
		if name := tenantOf(&t.Tasks[i]); !seen[name] {
			seen[name] = true
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// modelsOf finds the models of the hosts' GPUs in the built-in tables. One that is
// not there is taken to be a GPU without MIG whose memory is not known.
func modelsOf(hosts []gpu.HostInfo) ([]gpu.Model, []*gpu.Geometry) {
	var models []gpu.Model
	var geometries []*gpu.Geometry
	builtin := gpu.Builtin()
	for _, h := range hosts {
		for _, g := range h.GPUs {
			if slices.ContainsFunc(models, func(m gpu.Model) bool { return m.Key == g.Model }) {
				continue
			}
			m := gpu.Model{Key: g.Model}
			if i := slices.IndexFunc(builtin, func(m gpu.Model) bool { return m.Key == g.Model }); i >= 0 {
				m = builtin[i]
			}
			models = append(models, m)
			geometries = append(geometries, gpu.NewGeometry(m))
		}
	}
	return models, geometries
}

// HostsOf turns the hosts that a trace brings into a cluster.
func HostsOf(t *trace.Trace) []gpu.HostInfo {
	var out []gpu.HostInfo
	for _, h := range t.Hosts {
		info := gpu.HostInfo{Name: h.Name, Driver: "fake", CPUMilli: h.CPUMilli, MemMiB: h.MemoryMiB}
		for i := range h.GPUs {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("%s-%d", h.Name, i), Model: h.Model})
		}
		out = append(out, info)
	}
	return out
}

// GPUCount is the number of GPUs of a cluster.
func GPUCount(hosts []gpu.HostInfo) int {
	n := 0
	for _, h := range hosts {
		n += len(h.GPUs)
	}
	return n
}

package apitype

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// defaultLeaseTTL is how long an outside client may go without renewing.
const defaultLeaseTTL = time.Minute

// Work converts a submission into core words.
func (s TaskSpec) Work() (work.Spec, error) {
	out := work.Spec{Name: s.Name, Tenant: s.Tenant, Pool: s.Pool, Class: work.Class(s.Class),
		Command: s.Command, Dir: s.Dir, Env: s.Env, Secrets: s.Secrets}
	var err error
	if out.Priority, err = work.ParsePriority(s.Priority); err != nil {
		return out, err
	}
	gpus, most, err := upTo(s.GPUs, s.Max)
	if err != nil {
		return out, err
	}
	if out.Request, err = request(gpus, s.GPUMemory, s.Isolation, s.Members, s.CPUs, s.Memory); err != nil {
		return out, err
	}
	if out.Elastic, err = s.elastic(most); err != nil {
		return out, err
	}
	if err := out.Elastic.Validate(out.Request); err != nil {
		return out, err
	}
	if out.Container, err = s.container(); err != nil {
		return out, err
	}
	if out.Grace, err = duration("grace", s.Grace); err != nil {
		return out, err
	}
	if out.TTL, err = ttl(s.TTL); err != nil {
		return out, err
	}
	return s.order(out)
}

// order adds what says when a task runs, for how long, and after what.
func (s TaskSpec) order(out work.Spec) (work.Spec, error) {
	for _, x := range []struct {
		name, text string
		to         *time.Duration
	}{{"max_runtime", s.MaxRuntime, &out.MaxRuntime}, {"estimate", s.Estimate, &out.Estimate}, {"checkpoint_every", s.Checkpoint, &out.Checkpoint}} {
		var err error
		if *x.to, err = duration(x.name, x.text); err != nil {
			return out, err
		}
	}
	if s.Deadline != "" {
		t, err := time.Parse(time.RFC3339, s.Deadline)
		if err != nil || t.Year() < 1970 || t.Year() > 2200 { // what the core's clock can hold
			return out, work.Errorf(work.CodeInvalid, "deadline %q is not understood: expected a time in RFC 3339, such as 2026-12-03T08:00:00Z", s.Deadline)
		}
		out.Deadline = work.TimeOf(t)
	}
	out.After, out.AfterAny, out.Hold = taskIDs(s.After), taskIDs(s.AfterAny), s.Hold
	if s.Array != "" {
		a, err := work.ParseArray(s.Array)
		if err != nil {
			return out, err
		}
		out.Array = &a
	}
	return out, nil
}

func taskIDs(numbers []uint64) (out []work.TaskID) {
	for _, n := range numbers {
		out = append(out, work.TaskID(n))
	}
	return out
}

// Work converts a request for a lease into core words.
func (s LeaseSpec) Work() (work.Spec, error) {
	out := work.Spec{Name: s.Name, Tenant: s.Tenant, Pool: s.Pool, Class: work.Class(s.Class), LeaseTTL: defaultLeaseTTL,
		Elastic: work.Elastic{NoShare: s.NoShare, Labels: maps.Clone(s.Labels)}}
	var err error
	if out.Priority, err = work.ParsePriority(s.Priority); err != nil {
		return out, err
	}
	if out.Request, err = request(s.GPUs, s.GPUMemory, s.Isolation, s.Members, s.CPUs, s.Memory); err != nil {
		return out, err
	}
	if err := out.Elastic.Validate(out.Request); err != nil {
		return out, err
	}
	if out.TTL, err = ttl(s.TTL); err != nil {
		return out, err
	}
	if s.LeaseTTL != "" {
		if out.LeaseTTL, err = duration("lease_ttl", s.LeaseTTL); err != nil {
			return out, err
		}
		if out.LeaseTTL < time.Second {
			return out, work.Errorf(work.CodeInvalid, "lease_ttl %s is too short: expected 1s or more, and renew at half of it", s.LeaseTTL)
		}
	}
	return out, nil
}

func request(gpus, gpuMemory, isolation string, members int, cpus float64, memory string) (work.Request, error) {
	if gpus == "" {
		gpus = "1"
		if gpuMemory != "" { // memory alone asks for a part that has it
			gpus = gpuMemory
			gpuMemory = ""
		}
	}
	r, err := work.ParseGPUs(gpus)
	if err != nil {
		return r, err
	}
	if gpuMemory != "" {
		if r.GPUMemMiB > 0 {
			return r, work.Errorf(work.CodeInvalid, "GPU memory is given twice, as gpus %s and as gpu_memory %s: leave one out", gpus, gpuMemory)
		}
		if r.GPUMemMiB, err = work.ParseMiB(gpuMemory); err != nil {
			return r, err
		}
	}
	if math.IsNaN(cpus) || cpus < 0 || cpus > 1e6 {
		return r, work.Errorf(work.CodeInvalid, "%g CPUs is out of range: expected 0 or more cores", cpus)
	}
	r.CPUMilli = int64(math.Ceil(cpus * 1000))
	if memory != "" {
		if r.MemMiB, err = work.ParseMiB(memory); err != nil {
			return r, err
		}
	}
	r.Isolation, r.Members = work.Isolation(isolation), members
	return r, r.Validate()
}

// ttl reads the longest wait in the queue: "none" means no end, which the core
// writes as a negative duration.
func ttl(s string) (time.Duration, error) {
	if strings.EqualFold(s, "none") {
		return -1, nil
	}
	return duration("ttl", s)
}

func duration(what, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, work.Errorf(work.CodeInvalid, "%s %q is not understood: expected a duration such as 30s, 10m or 1h30m", what, s)
	}
	return d, nil
}

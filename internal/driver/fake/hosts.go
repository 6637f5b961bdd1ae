package fake

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
)

// What a fake host has for each of its GPUs: as an 8 × H100 server with two CPUs of
// 56 cores and 2 TiB.
const (
	cpuMilliPerGPU = 14_000
	memMiBPerGPU   = 256 << 10
	hostsPerRack   = 4
)

// Bounds of a shape, far above any cluster, so that a slip of the finger does not
// eat all memory.
const (
	maxHosts       = 100_000
	maxGPUsPerHost = 64
	maxGPUs        = 200_000
)

// ParseHosts reads a shape of a cluster: "8xH100-80GB" is one host with eight
// GPUs, "200x8xH100-80GB" two hundred of those; shapes may be joined by commas.
func ParseHosts(shape string) ([]gpu.HostInfo, error) {
	var out []gpu.HostInfo
	total := 0
	for one := range strings.SplitSeq(shape, ",") {
		hosts, gpus, model, err := parseShape(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		total += hosts * gpus
		if len(out)+hosts > maxHosts || total > maxGPUs {
			return nil, fmt.Errorf("hosts %q are too many: expected at most %d hosts and %d GPUs in all", shape, maxHosts, maxGPUs)
		}
		for range hosts {
			out = append(out, fakeHost(len(out)+1, gpus, model))
		}
	}
	return out, nil
}

func fakeHost(n, gpus int, model string) gpu.HostInfo {
	h := gpu.HostInfo{Name: fmt.Sprintf("fake-%04d", n), Driver: "fake", CPUMilli: int64(gpus) * cpuMilliPerGPU, MemMiB: int64(gpus) * memMiBPerGPU,
		Labels: map[string]string{"rack": fmt.Sprintf("r%02d", (n-1)/hostsPerRack+1)}}
	for i := range gpus {
		h.GPUs = append(h.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("GPU-fa4e%04x-%04x-4000-8000-%012x", n>>16, n&0xffff, i), Model: model})
	}
	return h
}

func parseShape(s string) (hosts, gpus int, model string, err error) {
	bad := fmt.Errorf("hosts %q are not understood: expected GPUSxMODEL such as 8xH100-80GB, or HOSTSxGPUSxMODEL such as 200x8xH100-80GB", s)
	parts := strings.SplitN(s, "x", 3)
	if len(parts) == 3 { // a model may hold an x, a count may not
		if _, e := strconv.Atoi(parts[1]); e != nil {
			parts = strings.SplitN(s, "x", 2)
		}
	}
	hosts = 1
	switch len(parts) {
	case 3:
		if hosts, err = strconv.Atoi(parts[0]); err != nil {
			return 0, 0, "", bad
		}
	case 2:
	default:
		return 0, 0, "", bad
	}
	if gpus, err = strconv.Atoi(parts[len(parts)-2]); err != nil {
		return 0, 0, "", bad
	}
	model = parts[len(parts)-1]
	switch {
	case hosts < 1 || hosts > maxHosts:
		return 0, 0, "", fmt.Errorf("hosts %q: %d hosts is out of range: expected 1 to %d", s, hosts, maxHosts)
	case gpus < 1 || gpus > maxGPUsPerHost:
		return 0, 0, "", fmt.Errorf("hosts %q: %d GPUs in one host is out of range: expected 1 to %d", s, gpus, maxGPUsPerHost)
	}
	var known []string
	for _, m := range gpu.Builtin() {
		if m.Key == model {
			return hosts, gpus, model, nil
		}
		known = append(known, m.Key)
	}
	return 0, 0, "", fmt.Errorf("hosts %q: GPU model %q is not known: there are %s", s, model, strings.Join(known, ", "))
}

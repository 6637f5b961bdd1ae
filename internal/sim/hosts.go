package sim

import (
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/gpu"
)

// ParseHosts reads a shape of a cluster, such as 200x8xH100-80GB.
func ParseHosts(shape string) ([]gpu.HostInfo, error) { return fake.ParseHosts(shape) }

// Package nvml tests the mock of NVIDIA's library through go-nvml, as gpupool uses it.
package nvml

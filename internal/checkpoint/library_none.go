//go:build !linux || !cgo

package checkpoint

// open says why there is no driver library here.
func open() (*library, cudaVersion, error) {
	return nil, 0, refuse("this gpupool cannot load NVIDIA's driver library: it takes Linux and a build with cgo (CGO_ENABLED=1), as the driver for NVIDIA GPUs does; elastic.gpu_checkpoint can name NVIDIA's cuda-checkpoint instead")
}

package baseline

// The rules that look at GPUs alone. To them all hosts are alike for a task of CPU only, which so goes to the first
// host with room in the order that decides ties.
const (
	// GPUPacking uses GPUs that are in use before idle ones, and those of hosts in use before those of idle hosts
	// (Weng et al., "MLaaS in the Wild", NSDI '22). Its score, in whole numbers, divisions rounded down, is
	//
	//	the task fits on GPUs in use:  100 − (what is free on the GPU, percent)/10
	//	it needs n idle GPUs:          50 − n, at least 33
	//	all n GPUs are idle:           33 − n, at least n
	//
	// A share gets the fullest GPU with room.
	GPUPacking Rule = "gpu-packing"

	// GPUClustering keeps tasks of one kind together: shares of GPUs, and tasks of the same number of whole GPUs
	// (Xiao et al., Gandiva, OSDI '18). With full = 25·(8 − free GPUs of the host)/8 its score is, in whole numbers,
	// divisions rounded down,
	//
	//	the host runs this kind and no other:  75 + full
	//	this kind and others:                  50 + full
	//	no GPU task at all:                    25 + full
	//	other kinds only:                      full
	//
	// A share gets the fullest GPU with room.
	GPUClustering Rule = "gpu-clustering"
)

type packing struct{ tightest }

func (p packing) score(h *host, t *Task) int {
	if t.GPUs == 0 {
		return 0
	}
	n := h.idle()
	if n == h.GPUs {
		return max(33-n, n)
	}
	// Only a share fits on a GPU in use.
	if !t.share() {
		return max(50-t.GPUs, 33)
	}
	free := h.free[p.gpu(h, t)]
	if free == milliGPU {
		return 50 - 1
	}
	return 100 - free*100/milliGPU/10
}

type clustering struct{ tightest }

func (clustering) score(h *host, t *Task) int {
	if t.GPUs == 0 {
		return 0
	}
	kinds := 0
	for _, runs := range h.kinds {
		if runs {
			kinds++
		}
	}
	full := 25 * (maxGPU - h.left) / maxGPU
	switch {
	case kinds == 0:
		return 25 + full
	case !h.kinds[t.kind()]:
		return full
	case kinds == 1:
		return 75 + full
	default:
		return 50 + full
	}
}

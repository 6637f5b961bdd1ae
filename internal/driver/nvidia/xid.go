package nvidia

import "github.com/gpupool/gpupool/internal/gpu"

// xid says what an XID means and what follows.
type xid struct {
	what  string
	do    gpu.Verdict // on the GPU; none = it is only counted
	fault bool        // of the program that it hit
	host  bool        // the verdict is on every GPU of the machine, at least to cordon
	mend  remedy
}

// remedy is what mends a GPU once it is empty.
type remedy int

const (
	none remedy = iota
	reset
	reboot
	replace
)

// xids is NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors), with what the
// catalogue advises turned into a verdict. Faults of programs (13, 31, 43, 45, 68) are no
// reason to doubt a GPU; NVIDIA's device plugin for Kubernetes leaves out the same ones.
// What is not in the table is counted and logged, no more. Not one row was seen on
// hardware by gpupool's authors.
var xids = map[int]xid{
	13: {what: "graphics engine exception", fault: true},
	31: {what: "GPU memory page fault", fault: true},
	43: {what: "the GPU stopped processing for a program", fault: true},
	45: {what: "preemptive cleanup after an earlier error", fault: true},
	68: {what: "video decoder exception", fault: true},

	48:  {what: "double-bit ECC error", do: gpu.VerdictDrain, mend: reset},
	95:  {what: "uncontained ECC error", do: gpu.VerdictDrain, mend: reset},
	171: {what: "uncorrectable DRAM error", do: gpu.VerdictDrain, mend: reset},
	172: {what: "uncorrectable SRAM error", do: gpu.VerdictDrain, mend: reset},
	94:  {what: "contained ECC error", do: gpu.VerdictCordon, fault: true, mend: reset},
	63:  {what: "a row of memory is to be remapped", do: gpu.VerdictCordon, mend: reset},
	64:  {what: "remapping a row of memory failed", do: gpu.VerdictCordon, mend: replace},

	74:  {what: "NVLink error", do: gpu.VerdictCordon, mend: reset},
	144: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset}, 145: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset},
	146: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset}, 147: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset},
	148: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset}, 149: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset},
	150: {what: "NVLink error", do: gpu.VerdictCordon, mend: reset},

	46:  {what: "the GPU stopped processing", do: gpu.VerdictDrain, mend: reset},
	62:  {what: "internal micro-controller halt", do: gpu.VerdictDrain, mend: reset},
	109: {what: "context switch timeout", do: gpu.VerdictDrain, mend: reset},
	110: {what: "security fault", do: gpu.VerdictDrain, mend: reset},
	119: {what: "GSP RPC timeout", do: gpu.VerdictDrain, mend: reset},
	120: {what: "GSP error", do: gpu.VerdictDrain, mend: reset},
	136: {what: "link training failed", do: gpu.VerdictDrain, mend: reset},
	140: {what: "unrecovered ECC error", do: gpu.VerdictDrain, mend: reset},
	143: {what: "GPU initialisation failed", do: gpu.VerdictDrain, mend: reset},
	155: {what: "NVLink software error", do: gpu.VerdictDrain, mend: reset},
	156: {what: "resource retirement", do: gpu.VerdictDrain, mend: reset},
	158: {what: "fatal timeout", do: gpu.VerdictDrain, mend: reset},

	79:  {what: "the GPU has fallen off the bus", do: gpu.VerdictBroken, host: true, mend: reboot},
	151: {what: "key rotation error", do: gpu.VerdictCordon, host: true, mend: reboot},

	92:  {what: "many single-bit ECC errors"},
	121: {what: "C2C link error"},
	154: {what: "the action to recover the GPU changed"}, // which action: a look says it
	157: {what: "resource retirement failed"},
	160: {what: "channel retirement"},
	161: {what: "channel retirement failed"},
}

// recovery is what field 230 (GPU recovery action) asks for.
var recovery = map[int]xid{
	1: {what: "the driver asks for a GPU reset", do: gpu.VerdictDrain, mend: reset},
	2: {what: "the driver asks for a reboot", do: gpu.VerdictDrain, host: true, mend: reboot},
	3: {what: "the driver asks to drain peer-to-peer traffic", do: gpu.VerdictCordon, mend: reset},
	4: {what: "the driver asks to drain the GPU and reset it", do: gpu.VerdictDrain, mend: reset},
	5: {what: "the driver asks to recover the IMEX domain", do: gpu.VerdictCordon, mend: none},
	6: {what: "the driver asks for a bus reset", do: gpu.VerdictDrain, mend: reset},
	7: {what: "the driver asks for a reboot of the system", do: gpu.VerdictDrain, host: true, mend: reboot},
}

package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// mig: which GPUs can be cut now?
func (e *exam) mig() Result {
	var on, off, slow, pending, never, lines, fixes []string
	for _, g := range e.gpus {
		m, known := board(g)
		n := fmt.Sprint(g.Index)
		switch {
		case g.MIG == "":
			continue
		case g.MIG == "none" || known && !m.HasMIG():
			never = append(never, n)
		case g.MIGPending != "" && g.MIGPending != g.MIG:
			pending = append(pending, n)
			fixes = append(fixes, "sudo nvidia-smi --gpu-reset -i "+n)
		case g.MIG == "on":
			on = append(on, n)
		case m.SlowMode:
			slow = append(slow, n)
		default:
			off = append(off, n)
		}
		lines = append(lines, fmt.Sprintf("GPU %d: MIG %s, %s", g.Index, g.MIG, plural(g.Instances, "instance")))
	}
	switch {
	case len(lines) == 0:
		return skip("nobody tells which GPUs can be cut")
	case len(pending) > 0:
		return warn("the MIG mode of GPU %s changes at its next reset", strings.Join(pending, ", ")).fix(fixes...).with(lines...)
	case len(slow) > 0:
		return warn("MIG is off on GPU %s, and this board is reset to switch it on, which gpupool never does by itself", strings.Join(slow, ", ")).fix("sudo nvidia-smi -i " + strings.Join(slow, ",") + " -mig 1").with(lines...)
	case len(off) > 0:
		return ok("MIG is off on GPU %s, and is switched on with the first slice that needs it", strings.Join(off, ", ")).with(lines...)
	case len(on) == 0:
		return skip("no GPU here has MIG: used whole or by shares of one tenant")
	case len(never) > 0:
		return ok("MIG is on for GPU %s; GPU %s has none", strings.Join(on, ", "), strings.Join(never, ", ")).with(lines...)
	}
	return ok("MIG is on for %s", plural(len(on), "GPU")).with(lines...)
}

// client is a program known to keep GPUs open.
type client struct {
	service string // systemd's name of it
	why     string
	blocks  bool // changes of MIG mode
	stop    string
}

// known says what a program is.
func known(name string) (client, bool) {
	unit := func(service, why string) (client, bool) {
		return client{service: service, why: why, blocks: true, stop: "sudo systemctl stop " + service}, true
	}
	switch {
	case name == "nv-hostengine":
		return unit("nvidia-dcgm", "DCGM's engine")
	case name == "dcgm-exporter":
		return unit("dcgm-exporter", "DCGM for Prometheus")
	case strings.HasPrefix(name, "nvsm"):
		return unit("nvsm", "NVIDIA System Management")
	case name == "nvidia-device-plugin":
		return client{service: name, why: "of Kubernetes", blocks: true, stop: "kubectl label node \"$(hostname)\" nvidia.com/gpu.deploy.device-plugin=false --overwrite"}, true
	case name == "nvidia-persistenced":
		return client{service: name, why: "keeps the driver loaded, blocks nothing"}, true
	case name == "nv-fabricmanager":
		return client{service: "nvidia-fabricmanager", why: "runs the NVSwitches, blocks nothing"}, true
	case strings.HasPrefix(name, "nvidia-cuda-mps"):
		return client{service: name, why: "MPS", blocks: true, stop: "echo quit | sudo nvidia-cuda-mps-control"}, true
	case name == "gpupool":
		return client{service: "gpupool", why: "this pool"}, true
	}
	return client{}, false
}

// clients: who holds GPUs open, and so stops MIG mode from changing?
func (e *exam) clients() Result {
	if e.loaded == "" {
		return skip("without the kernel module nobody holds a GPU")
	}
	var block, lines, fixes []string
	for _, p := range e.procs {
		if len(p.nodes) == 0 {
			continue
		}
		c, is := known(p.name)
		if !is {
			c = client{why: "holds it open", blocks: true, stop: fmt.Sprintf("sudo kill %d    # %s, after asking whose it is", p.pid, p.name)}
		}
		lines = append(lines, fmt.Sprintf("%s, %s: %s", p, c.why, strings.Join(p.nodes, " ")))
		if c.blocks {
			block = append(block, p.String())
			fixes = append(fixes, c.stop)
		}
	}
	slices.Sort(fixes)
	fixes = slices.Compact(fixes)

	blind := ""
	if !e.can(capPtrace) {
		blind = "; this user sees only its own processes"
	}
	wanted := slices.ContainsFunc(e.gpus, func(g GPU) bool { return g.MIG == "off" || g.MIGPending != "" && g.MIGPending != g.MIG })
	switch {
	case len(block) > 0 && wanted:
		return warn("MIG mode cannot change while %s %s GPUs open%s", strings.Join(block, ", "), oneOr(len(block), "holds", "hold"), blind).fix(fixes...).with(lines...)
	case len(block) > 0:
		return ok("%s %s GPUs open; MIG mode need not change%s", strings.Join(block, ", "), oneOr(len(block), "holds", "hold"), blind).with(lines...)
	}
	return ok("nobody who would block a change of MIG mode holds a GPU open%s", blind).with(lines...)
}

func oneOr(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// caps: are the nodes there by which the right to cut GPUs and to use instances is given?
func (e *exam) caps() Result {
	switch {
	case e.loaded == "":
		return skip("without the kernel module there are no nodes of instances")
	case !slices.ContainsFunc(e.gpus, func(g GPU) bool { return g.MIG == "on" }):
		return skip("no GPU is in MIG mode")
	}
	minors := e.capMinors()
	if len(minors) == 0 {
		return warn("/proc/driver/nvidia-caps/mig-minors is missing: the nodes of instances cannot be found, and tasks cannot be fenced in").fix("ls /proc/driver/nvidia/capabilities/mig")
	}
	var missing, fixes []string
	for _, name := range []string{"config", "monitor"} {
		n, is := minors[name]
		if node := "/dev/nvidia-caps/nvidia-cap" + n; !is || e.stat(node) == nil {
			missing = append(missing, "mig/"+name)
			fixes = append(fixes, "sudo nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/"+name)
		}
	}
	if len(missing) > 0 {
		return warn("the nodes in /dev/nvidia-caps for %s are missing", strings.Join(missing, ", ")).fix(fixes...)
	}
	return ok("the nodes in /dev/nvidia-caps are there").with(fmt.Sprintf("%d of them now", len(e.glob("dev/nvidia-caps/*"))))
}

// capMinors reads the minor numbers of capabilities by name, such as config, monitor, gpu0/gi1/access.
func (e *exam) capMinors() map[string]string {
	minors := map[string]string{}
	for line := range strings.Lines(e.text("proc/driver/nvidia-caps/mig-minors")) {
		if f := strings.Fields(line); len(f) == 2 {
			minors[f[0]] = f[1]
		}
	}
	return minors
}

// mps: can one tenant's tasks share a GPU, and does a daemon run that nobody asked for?
func (e *exam) mps() Result {
	if e.loaded == "" {
		return skip("without the kernel module there is no MPS")
	}
	var stray []string
	for _, p := range e.procs {
		if strings.HasPrefix(p.name, "nvidia-cuda-mps") && !e.ours(p.pid) {
			stray = append(stray, p.String())
		}
	}
	switch {
	case len(stray) > 0:
		return warn("MPS runs already and is not gpupool's: %s; its clients share one fault", strings.Join(stray, ", ")).fix("echo quit | sudo nvidia-cuda-mps-control")
	case e.which("nvidia-cuda-mps-control") == "":
		return warn("nvidia-cuda-mps-control is not in PATH: tasks share a GPU by time slices, without memory limits").fix(e.install("nvidia-cuda-mps", "nvidia-driver-cuda"))
	}
	return ok("MPS can be started (%s), and none runs now", e.which("nvidia-cuda-mps-control"))
}

// mpsRun is where gpupool puts the pipes of its MPS daemons where it may; else they are in the data folder.
const mpsRun = "/run/gpupool-mps/"

// ours tells whether gpupool started an MPS daemon: it gives each its own pipe folder.
func (e *exam) ours(pid int) bool {
	for v := range strings.SplitSeq(e.text(fmt.Sprintf("proc/%d/environ", pid)), "\x00") {
		if dir, is := strings.CutPrefix(strings.TrimSpace(v), "CUDA_MPS_PIPE_DIRECTORY="); is && (strings.HasPrefix(dir, mpsRun) || e.o.Data != "" && strings.HasPrefix(dir, strings.TrimSuffix(e.o.Data, "/")+"/")) {
			return true
		}
	}
	return false
}

// checkpointDriver is the first whose library has all calls that park and resume need.
const checkpointDriver = "570"

// park: can an idle task's GPU memory be moved to the machine's?
func (e *exam) park() Result {
	have := e.driverName()
	if have == "" {
		return skip("without a driver nothing is parked")
	}
	if _, found := e.libraryVersion("libcuda.so"); !found {
		return warn("libcuda.so.1 is not installed: idle tasks cannot be parked").fix(e.install("libcuda1", "nvidia-driver-cuda-libs"))
	}
	if lessVersion(have, checkpointDriver) {
		return warn("driver %s cannot park idle tasks: that takes %s or later", have, checkpointDriver).fix(append(e.installDriver(), "sudo reboot")...)
	}
	total, free := e.memory()
	var largest int64
	for _, g := range e.gpus {
		largest = max(largest, g.MemoryMiB)
	}
	switch {
	case largest == 0 || total == 0:
		return ok("driver %s can park idle tasks of whole GPUs", have)
	case free < largest:
		return warn("parking puts GPU memory into main memory: a full GPU takes %d MiB, and %d of %d MiB are free", largest, free, total).fix("free -m")
	}
	return ok("driver %s can park idle tasks of whole GPUs; main memory has room for %s (%d MiB free)", have, plural(int(free/largest), "full GPU"), free)
}

// memory is the machine's, in MiB.
func (e *exam) memory() (total, free int64) {
	for line := range strings.Lines(e.text("proc/meminfo")) {
		var kib int64
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); err == nil {
			total = kib >> 10
		}
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); err == nil {
			free = kib >> 10
		}
	}
	return total, free
}

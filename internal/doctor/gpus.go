package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// module: is NVIDIA's kernel module loaded?
func (e *exam) module() Result {
	switch {
	case e.loaded != "":
		return ok("NVIDIA kernel module %s is loaded", e.loaded).with(oneLine(e.text("proc/driver/nvidia/version")))
	case e.stat("proc/driver/nvidia/version") != nil:
		return warn("an NVIDIA kernel module is loaded, and its version is not understood: %q", oneLine(e.text("proc/driver/nvidia/version"))).fix("cat /proc/driver/nvidia/version")
	case e.asked.Source == "NVML" && len(e.gpus) > 0:
		return warn("NVML knows %s, and no kernel module of NVIDIA is loaded: the library is a mock, or its module is hidden here", plural(len(e.gpus), "GPU"))
	case len(e.pci) == 0:
		return fail(GPUs, "there is no NVIDIA GPU on the PCI bus and no driver of NVIDIA").fix("gpupool serve --fake 8xH100-80GB")
	case e.stat("sys/module/nouveau") != nil:
		return fail(GPUs, "%s on the PCI bus, driven by nouveau instead of NVIDIA's driver", plural(len(e.pci), "NVIDIA GPU")).
			fix(append([]string{"echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/no-nouveau.conf"}, append(e.installDriver(), "sudo reboot")...)...).with(e.pci...)
	}
	if _, err := e.o.System.Run(e.ctx, "modinfo", "-F", "version", "nvidia"); err == nil {
		return fail(GPUs, "%s on the PCI bus, and the kernel module of NVIDIA is installed but not loaded", plural(len(e.pci), "NVIDIA GPU")).fix("sudo modprobe nvidia").with(e.pci...)
	}
	return fail(GPUs, "%s on the PCI bus, and no driver of NVIDIA", plural(len(e.pci), "NVIDIA GPU")).fix(e.installDriver()...).with(e.pci...)
}

// installDriver is how this distribution installs NVIDIA's driver.
func (e *exam) installDriver() []string {
	switch id := e.distribution(); {
	case strings.Contains(id, "ubuntu"):
		return []string{"sudo ubuntu-drivers install --gpgpu"}
	case strings.Contains(id, "debian"):
		return []string{"sudo apt-get install -y nvidia-driver"}
	case strings.Contains(id, "rhel"), strings.Contains(id, "fedora"):
		return []string{"sudo dnf install -y nvidia-open"}
	}
	return []string{"install the driver from https://www.nvidia.com/drivers"}
}

// distribution is the ids of this Linux and of what it is like.
func (e *exam) distribution() string {
	var ids []string
	for line := range strings.Lines(e.text("etc/os-release")) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), "="); k == "ID" || k == "ID_LIKE" {
			ids = append(ids, strings.Trim(v, `"`))
		}
	}
	return strings.Join(ids, " ")
}

// install is how this distribution installs a package.
func (e *exam) install(deb, rpm string) string {
	if id := e.distribution(); strings.Contains(id, "rhel") || strings.Contains(id, "fedora") {
		return "sudo dnf install -y " + rpm
	}
	return "sudo apt-get install -y " + deb
}

// libraryDirs is where distributions and containers keep the driver's libraries.
var libraryDirs = []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/lib/x86_64-linux-gnu/nvidia/current", "usr/local/nvidia/lib64"}

// libraryVersion is the version in the name of a library of the driver; found tells whether it is there at all.
func (e *exam) libraryVersion(name string) (version string, found bool) {
	for _, dir := range libraryDirs {
		found = found || e.stat(path.Join(dir, name+".1")) != nil
		for _, file := range e.glob(path.Join(dir, name+".*")) {
			if v := versionText.FindString(path.Base(file)); v != "" {
				return v, true
			}
		}
	}
	return "", found
}

// library: can NVML be asked?
func (e *exam) library() Result {
	v, found := e.libraryVersion("libnvidia-ml.so")
	switch {
	case e.asked.Source == "NVML" && v != "" && e.loaded != "" && v != e.loaded:
		return warn("NVML answers; its library is %s and the kernel module %s, so new programs may be refused", v, e.loaded).fix("sudo reboot")
	case e.asked.Source == "NVML":
		return ok("NVML answers: driver %s, %s", cmp.Or(e.asked.Driver, "of unknown version"), plural(len(e.gpus), "GPU")).with(gpuLines(e.gpus)...)
	case e.loaded == "":
		return skip("without the kernel module there is nothing to ask NVML about")
	case v != "" && v != e.loaded:
		return fail(GPUs, "libnvidia-ml.so.1 is %s and the kernel module %s: the driver was changed and its old module still runs", v, e.loaded).fix("sudo reboot")
	case !found:
		return fail(GPUs, "the kernel module is loaded, and libnvidia-ml.so.1 is not installed").fix(e.install("libnvidia-ml1", "nvidia-driver-cuda-libs"))
	case errors.Is(e.nvmlErr, ErrNoNVML):
		return fail(GPUs, "%s", ErrNoNVML).fix("CGO_ENABLED=1 go build -o gpupool ./cmd/gpupool").with(gpuLines(e.gpus)...)
	case e.nvmlErr != nil:
		return fail(GPUs, "NVML does not answer: %s", oneLine(e.nvmlErr.Error())).fix("nvidia-smi -q", "sudo dmesg | grep -i -e nvrm -e xid")
	}
	return warn("nobody here can ask NVML; what follows is from %s", cmp.Or(e.asked.Source, "/proc")).with(gpuLines(e.gpus)...)
}

func gpuLines(gpus []GPU) (lines []string) {
	for _, g := range gpus {
		lines = append(lines, fmt.Sprintf("GPU %d: %s, %s, %d MiB, MIG %s, ECC %s, persistence %s", g.Index, g.Name, g.UUID, g.MemoryMiB,
			cmp.Or(g.MIG, "?"), cmp.Or(g.ECC, "?"), cmp.Or(g.Persistence, "?")))
	}
	return lines
}

// driver: is it new enough for each board?
func (e *exam) driver() Result {
	have := e.driverName()
	if have == "" {
		return skip("there is no driver whose version could be judged")
	}
	if len(e.gpus) == 0 {
		return warn("driver %s is loaded and shows no GPU", have).fix("sudo dmesg | grep -i -e nvrm -e xid")
	}
	var lines, old []string
	for _, g := range e.gpus {
		m, known := board(g)
		least := versionText.FindString(m.MinDriver)
		switch {
		case !known:
			lines = append(lines, fmt.Sprintf("GPU %d: %s is not in gpupool's tables: used whole or by shares", g.Index, g.Name))
		case least == "":
			lines = append(lines, fmt.Sprintf("GPU %d: no source gives the oldest driver for MIG on %s", g.Index, m.Key))
		case lessVersion(have, least):
			old = append(old, fmt.Sprintf("%s needs %s or later for MIG", m.Key, least))
		default:
			lines = append(lines, fmt.Sprintf("GPU %d: %s needs %s or later for MIG", g.Index, m.Key, least))
		}
	}
	if old = slices.Compact(old); len(old) > 0 {
		return fail(MIG, "driver %s is too old: %s", have, strings.Join(old, ", ")).fix(append(e.installDriver(), "sudo reboot")...).with(lines...)
	}
	return ok("driver %s is new enough for %s", have, plural(len(e.gpus), "GPU")).with(lines...)
}

// nodes: can this process open the devices?
func (e *exam) nodes() Result {
	if e.loaded == "" {
		return skip("without the kernel module there are no device nodes")
	}
	want := []string{"/dev/nvidiactl", "/dev/nvidia-uvm"}
	for _, g := range e.gpus {
		want = append(want, fmt.Sprintf("/dev/nvidia%d", g.Minor))
	}
	var missing, closed, lines []string
	create := []string{"sudo nvidia-modprobe -u"}
	for _, n := range want {
		info := e.stat(n)
		switch {
		case info == nil:
			missing = append(missing, n)
		case !e.canUse(info):
			closed = append(closed, n)
		default:
			lines = append(lines, n+" "+info.Mode().String())
		}
	}
	for _, g := range e.gpus {
		create = append(create, fmt.Sprintf("-c %d", g.Minor))
	}
	switch {
	case len(missing) > 0:
		return fail(GPUs, "device nodes are missing: %s", strings.Join(missing, ", ")).fix(strings.Join(create, " ")).with(lines...)
	case len(closed) > 0:
		return fail(GPUs, "this user may not open %s", strings.Join(closed, ", ")).fix("sudo gpupool doctor", "ls -l /dev/nvidia*").with(lines...)
	}
	return ok("%s are there and can be opened", plural(len(want), "device node")).with(lines...)
}

// canUse tells whether this process may read and write a node; without an owner in sight only what all may counts.
func (e *exam) canUse(info fs.FileInfo) bool {
	const dacOverride = 1
	perm := info.Mode().Perm()
	if perm&0o006 == 0o006 || e.status.uid == 0 && e.can(dacOverride) {
		return true
	}
	st, is := info.Sys().(*syscall.Stat_t)
	return is && int(st.Uid) == e.status.uid && perm&0o600 == 0o600
}

func (e *exam) can(capability uint) bool { return e.status.caps>>capability&1 == 1 }

// health: what does the driver itself want done, and is ECC on?
func (e *exam) health() Result {
	if e.asked.Source == "" {
		return skip("nobody tells how the GPUs are")
	}
	var sick, noECC, fixes, lines []string
	for _, g := range e.gpus {
		if r := g.Recovery; r != "" && r != "none" {
			sick = append(sick, fmt.Sprintf("GPU %d wants %s", g.Index, strings.ReplaceAll(r, "_", " ")))
			fixes = append(fixes, recoveryFix(g))
		}
		if g.ECC == "off" {
			noECC = append(noECC, fmt.Sprint(g.Index))
		}
		lines = append(lines, fmt.Sprintf("GPU %d: recovery action %s, ECC %s", g.Index, cmp.Or(g.Recovery, "unknown"), cmp.Or(g.ECC, "unknown")))
	}
	switch {
	case len(sick) > 0:
		return fail(Limits, "the driver asks for help: %s", strings.Join(sick, ", ")).fix(slices.Compact(fixes)...).with(lines...)
	case len(noECC) > 0:
		return warn("ECC is off on GPU %s: a flipped bit goes unnoticed", strings.Join(noECC, ", ")).
			fix("sudo nvidia-smi -i "+strings.Join(noECC, ",")+" -e 1", "sudo reboot").with(lines...)
	}
	if !slices.ContainsFunc(e.gpus, func(g GPU) bool { return g.Recovery != "" }) {
		return skip("nobody tells whether the driver wants something done").with(lines...)
	}
	return ok("the driver reports no GPU that needs help").with(lines...)
}

func recoveryFix(g GPU) string {
	switch {
	case strings.Contains(g.Recovery, "reboot"):
		return "sudo reboot"
	case strings.Contains(g.Recovery, "drain"):
		return fmt.Sprintf("sudo nvidia-smi --gpu-reset -i %d    # once its tasks are gone", g.Index)
	}
	return fmt.Sprintf("sudo nvidia-smi --gpu-reset -i %d", g.Index)
}

// fabric: boards joined by NVSwitch compute nothing until its manager runs.
func (e *exam) fabric() Result {
	if len(e.glob("proc/driver/nvidia-nvswitch/devices/*")) == 0 {
		return skip("there is no NVSwitch that needs a manager")
	}
	for _, p := range e.procs {
		if p.name == "nv-fabricmanager" {
			return ok("the fabric manager runs (PID %d)", p.pid)
		}
	}
	return fail(GPUs, "the GPUs are joined by NVSwitch and the fabric manager does not run: CUDA programs would not start").fix("sudo systemctl enable --now nvidia-fabricmanager")
}

// persistence: does the driver stay loaded while nobody uses a GPU?
func (e *exam) persistence() Result {
	var off []string
	known := 0
	for _, g := range e.gpus {
		if g.Persistence != "" {
			known++
		}
		if g.Persistence == "off" {
			off = append(off, fmt.Sprint(g.Index))
		}
	}
	switch {
	case known == 0:
		return skip("nobody tells whether the driver stays loaded")
	case len(off) == 0:
		return ok("persistence mode is on: the driver stays loaded between tasks")
	}
	return warn("persistence mode is off on GPU %s: each first task waits for the driver, and on Hopper and later MIG mode is lost when it unloads", strings.Join(off, ", ")).
		fix("sudo systemctl enable --now nvidia-persistenced || sudo nvidia-smi -pm 1")
}

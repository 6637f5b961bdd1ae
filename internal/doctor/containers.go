package doctor

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// podmanFirst is the first podman that gives devices by CDI.
const podmanFirst = "4.1.0"

// podman: can tasks run in containers?
func (e *exam) podman() Result {
	if e.which("podman") == "" {
		return warn("podman is not installed: tasks run as processes, without images").fix(e.install("podman crun", "podman crun"))
	}
	out, err := e.o.System.Run(e.ctx, "podman", "info", "--format", "json")
	if err != nil {
		return fail(Containers, "podman is installed and does not work: %s", oneLine(err.Error())).fix("podman info")
	}
	var info struct {
		Host struct {
			CgroupVersion string `json:"cgroupVersion"`
			OCIRuntime    struct{ Name, Version string }
			Security      struct{ Rootless, SeccompEnabled bool }
		}
		Store   struct{ GraphDriverName string }
		Version struct{ Version string }
	}
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		return fail(Containers, "podman info answers no JSON: %s", err).fix("podman info --format json")
	}
	v := info.Version.Version
	detail := fmt.Sprintf("runtime %s, storage %s, control groups %s, rootless %t, seccomp %t", info.Host.OCIRuntime.Name, info.Store.GraphDriverName, info.Host.CgroupVersion, info.Host.Security.Rootless, info.Host.Security.SeccompEnabled)
	switch {
	case lessVersion(v, podmanFirst):
		return fail(Containers, "podman %s is too old: devices are given by CDI from %s on", v, podmanFirst).fix(e.install("podman", "podman")).with(detail)
	case !info.Host.Security.SeccompEnabled:
		return warn("podman %s runs containers without seccomp", v).fix("podman info --format '{{.Host.Security}}'").with(detail)
	}
	return ok("podman %s works", v).with(detail)
}

// runtime: what starts the containers?
func (e *exam) runtime() Result {
	if e.which("podman") == "" {
		return skip("without podman no runtime is needed")
	}
	for _, name := range []string{"crun", "runc"} {
		if at := e.which(name); at != "" {
			return ok("%s starts containers (%s)", name, at)
		}
	}
	return fail(Containers, "neither crun nor runc is installed: podman cannot start containers").fix(e.install("crun", "crun"))
}

// cdi: is the driver described for containers, and the one that runs now?
func (e *exam) cdi() Result {
	var specs []string
	for _, dir := range []string{"etc/cdi", "var/run/cdi", "run/cdi"} {
		for _, ext := range []string{"yaml", "json"} {
			specs = append(specs, e.glob(path.Join(dir, "*."+ext))...)
		}
	}
	const generate = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
	var of, stale, lines []string
	for _, s := range specs {
		text := e.text(s)
		if !strings.Contains(text, "nvidia.com/") {
			continue
		}
		of = append(of, "/"+s)
		lines = append(lines, "/"+s)
		if i := strings.Index(text, "libcuda.so."); i >= 0 && e.loaded != "" {
			if v := versionText.FindString(text[i:min(len(text), i+40)]); v != "" && v != e.loaded {
				stale = append(stale, fmt.Sprintf("/%s (%s)", s, v))
			}
		}
	}
	toolkit := e.which("nvidia-ctk")
	switch {
	case e.loaded == "":
		return skip("without the kernel module there is nothing to give to containers")
	case len(stale) > 0:
		return warn("CDI describes another driver than %s: %s", e.loaded, strings.Join(stale, ", ")).fix(generate).with(lines...)
	case toolkit == "" && len(of) == 0:
		return warn("nvidia-container-toolkit is not installed: containers get the devices, and not the driver's libraries").
			fix(e.install("nvidia-container-toolkit", "nvidia-container-toolkit"), generate)
	case len(of) == 0:
		return warn("there is no CDI description of the driver in /etc/cdi or /var/run/cdi").fix(generate)
	}
	return ok("CDI describes driver %s in %s", e.loaded, strings.Join(slices.Compact(of), ", ")).with(lines...)
}

// visible: may an image ask for all GPUs by itself?
func (e *exam) visible() Result {
	const file, key = "etc/nvidia-container-runtime/config.toml", "accept-nvidia-visible-devices-envvar-when-unprivileged"
	if e.stat(file) == nil {
		return skip("nvidia-container-runtime is not set up, so no image can ask it for GPUs")
	}
	for line := range strings.Lines(e.text(file)) {
		if k, v, _ := strings.Cut(line, "="); strings.TrimSpace(k) == key && strings.HasPrefix(strings.TrimSpace(v), "false") {
			return ok("an image cannot ask nvidia-container-runtime for GPUs by itself")
		}
	}
	return warn("any image can take all GPUs past the pool, by NVIDIA_VISIBLE_DEVICES=all under nvidia-container-runtime").
		fix("sudo nvidia-ctk config --in-place --set " + key + "=false")
}

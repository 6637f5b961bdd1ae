package checkpoint

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// wholeGPUs lists the GPUs that a process was given, and refuses one that has only parts of them; empty: not said.
func wholeGPUs(root fs.FS, pid int) (devices []string, err error) {
	b, err := fs.ReadFile(root, fmt.Sprintf("proc/%d/environ", pid))
	if err != nil {
		return nil, refuse("the environment of process %d cannot be read: %s", pid, err)
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		name, value, _ := strings.Cut(string(kv), "=")
		switch {
		case name == "CUDA_MPS_PIPE_DIRECTORY":
			return nil, refuse("process %d shares its GPU by MPS: the driver checkpoints only processes that have whole GPUs", pid)
		case name != "CUDA_VISIBLE_DEVICES" || value == "":
			continue
		}
		devices = strings.Split(value, ",")
		for _, d := range devices {
			if strings.HasPrefix(d, "MIG-") {
				return nil, refuse("process %d has the MIG instance %s: the driver checkpoints only processes that have whole GPUs", pid, d)
			}
		}
	}
	return devices, nil
}

// room is how many MiB of main memory a process may still take, and how that comes. The least of what the machine and its
// control groups have left counts: the driver's copy is charged to the process.
func room(root fs.FS, pid int) (mib int64, why string, err error) {
	const least = 2048 // MiB that stay free on any machine
	info, err := table(root, "proc/meminfo")
	if err != nil {
		return 0, "", err
	}
	available, ok := info["MemAvailable:"]
	if !ok {
		return 0, "", refuse("/proc/meminfo does not say MemAvailable, so whether GPU memory would fit into main memory is not known")
	}
	available /= 1024
	reserve := max(info["MemTotal:"]/1024/20, least)
	mib = available - reserve
	why = fmt.Sprintf("%d MiB of it is available, of which %d MiB stays free", available, reserve)
	b, err := fs.ReadFile(root, fmt.Sprintf("proc/%d/cgroup", pid))
	if err != nil {
		return 0, "", refuse("the control group of process %d cannot be read: %s", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		group, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for v2 && group != "/" && group != "." && group != "" {
			if left, limit, limited := groupRoom(root, group); limited && left < mib {
				mib, why = left, fmt.Sprintf("Its control group %s has %d MiB left of its limit of %d MiB", group, left, limit)
			}
			group = path.Dir(group)
		}
	}
	return mib, why, nil
}

// groupRoom is what a control group has left of its own limit, in MiB. What it holds of files and has not used lately
// gives way.
func groupRoom(root fs.FS, group string) (left, limit int64, limited bool) {
	dir := path.Join("sys/fs/cgroup", group)
	number := func(name string) (int64, bool) {
		b, err := fs.ReadFile(root, path.Join(dir, name))
		n, bad := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && bad == nil
	}
	limit, limited = number("memory.max") // "max" is no number
	used, known := number("memory.current")
	if !limited || !known {
		return 0, 0, false
	}
	if stat, err := table(root, path.Join(dir, "memory.stat")); err == nil {
		used -= stat["inactive_file"]
	}
	return (limit - used) >> 20, limit >> 20, true
}

// table reads lines of a name and a number.
func table(root fs.FS, name string) (map[string]int64, error) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, refuse("/%s cannot be read, so whether GPU memory would fit into main memory is not known: %s", name, err)
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 {
			out[f[0]], _ = strconv.ParseInt(f[1], 10, 64) // no number is 0
		}
	}
	return out, nil
}

package nvidia

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// below is a file of the machine whose root is root; "" = this one.
func below(root, name string) string { return filepath.Clean(root + "/" + name) }

// bootID names the run of the machine since it was started.
func bootID(root string) (string, error) {
	b, err := os.ReadFile(below(root, "/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("when this machine was started is not known, and no MIG instance outlives that: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// resources are the machine's processors, in thousandths, and its memory.
func resources(root string) (cpuMilli, memMiB int64, err error) {
	cpus := int64(runtime.NumCPU())
	if b, err := os.ReadFile(below(root, "/proc/cpuinfo")); err == nil { // not only those that this process may use
		n := int64(0)
		for line := range bytes.Lines(b) {
			if bytes.HasPrefix(line, []byte("processor\t")) {
				n++
			}
		}
		cpus = max(cpus, n)
	}
	b, err := os.ReadFile(below(root, "/proc/meminfo"))
	if err != nil {
		return 0, 0, fmt.Errorf("how much memory this machine has is not known: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return cpus * 1000, kib >> 10, err
		}
	}
	return 0, 0, fmt.Errorf("/proc/meminfo has no MemTotal")
}

// environ reads one variable that a process was started with; "" = none, or not ours to read.
func environ(pid int, name string) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if v, is := bytes.CutPrefix(kv, []byte(name+"=")); is {
			return string(v)
		}
	}
	return ""
}

// started is when a process began, in ticks since the machine did; 0 = there is none.
func started(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // a name may hold anything
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	t, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0
	}
	return t
}

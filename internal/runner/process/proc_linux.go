package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes orphans below the shim its children, wherever they went.
func adopt() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) //nolint:errcheck // known since Linux 3.4
}

// sealFiles keeps every file but the three standard ones from the program.
func sealFiles() {
	if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil { // before Linux 5.11
		unix.CloseOnExec(3)
	}
}

// attributes put the program into a group of its own, into its control group, and
// let it die with the shim.
func attributes(cg *cgroup) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if fd := cg.fd(); fd >= 0 {
		a.UseCgroupFD, a.CgroupFD = true, fd
	}
	return a
}

// noNewPrivileges keeps this thread, and what it starts, from programs that make whoever
// runs them someone else.
func noNewPrivileges() {
	unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) //nolint:errcheck // known since Linux 3.5
}

// stat reads the fields of /proc/PID/stat after the name, which may hold anything.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// startTime is when a process began, in ticks since the machine did; 0 = no such.
func startTime(pid int) uint64 {
	if f := stat(pid); len(f) > 19 {
		t, err := strconv.ParseUint(f[19], 10, 64)
		if err == nil {
			return t
		}
	}
	return 0
}

// pids lists all processes.
func pids() (out []int) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// descendants lists the living processes below one.
func descendants(root int) (out []int) {
	children := map[int][]int{}
	for _, pid := range pids() {
		if f := stat(pid); len(f) > 1 && f[0] != "Z" {
			if parent, err := strconv.Atoi(f[1]); err == nil {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	for next := children[root]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		out = append(out, pid)
	}
	return out
}

// marked lists the living processes of a member by the mark in their environment.
func marked(folder string) (out []int) {
	mark := []byte(markVariable + "=" + folder)
	for _, pid := range pids() {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil || pid == os.Getpid() {
			continue
		}
		for kv := range bytes.SplitSeq(b, []byte{0}) {
			if bytes.Equal(kv, mark) {
				if f := stat(pid); len(f) > 0 && f[0] != "Z" {
					out = append(out, pid)
				}
				break
			}
		}
	}
	return out
}

// visible lists the devices that a process was started with.
func visible(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	for kv := range bytes.SplitSeq(b, []byte{0}) {
		if v, ok := strings.CutPrefix(string(kv), "CUDA_VISIBLE_DEVICES="); ok && v != "" {
			return strings.Split(v, ",")
		}
	}
	return nil
}

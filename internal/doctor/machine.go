package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Capabilities by their numbers in the kernel.
const (
	capKill     = 5
	capSetgid   = 6
	capSetuid   = 7
	capPtrace   = 19
	capSysAdmin = 21
	capMknod    = 27
)

// rights: may this process cut GPUs and start tasks as other users?
func (e *exam) rights() Result {
	if e.status.uid < 0 {
		return skip("the kernel does not tell what this process may do")
	}
	var lacks []string
	for _, c := range []struct {
		bit  uint
		name string
	}{{capSysAdmin, "CAP_SYS_ADMIN"}, {capSetuid, "CAP_SETUID"}, {capSetgid, "CAP_SETGID"}, {capKill, "CAP_KILL"}, {capPtrace, "CAP_SYS_PTRACE"}, {capMknod, "CAP_MKNOD"}} {
		if !e.can(c.bit) {
			lacks = append(lacks, c.name)
		}
	}
	who := "root"
	if e.status.uid != 0 {
		who = fmt.Sprintf("user %d", e.status.uid)
	}
	switch {
	case !e.can(capSysAdmin):
		return warn("%s lacks CAP_SYS_ADMIN: it can neither cut GPUs (MIG) nor run tasks as their tenants' users", who).fix("sudo gpupool service install").with("lacks " + strings.Join(lacks, " "))
	case len(lacks) > 0:
		return warn("%s lacks %s", who, strings.Join(lacks, ", ")).fix("sudo gpupool service install")
	}
	return ok("%s may cut GPUs and run tasks as other users", who)
}

// cgroup: can the CPU and memory of tasks be limited?
func (e *exam) cgroup() Result {
	controllers := e.text("sys/fs/cgroup/cgroup.controllers")
	if controllers == "" {
		if len(e.glob("sys/fs/cgroup/*")) == 0 {
			return warn("there are no control groups: the CPU and memory of tasks are not limited").fix("mount | grep cgroup")
		}
		return warn("control groups are version 1: the CPU and memory of tasks are not limited").fix(e.kernelArgument("systemd.unified_cgroup_hierarchy=1")...)
	}
	has := " " + strings.TrimSpace(controllers) + " "
	var lacks []string
	for _, c := range []string{"cpu", "memory"} {
		if !strings.Contains(has, " "+c+" ") {
			lacks = append(lacks, c)
		}
	}
	if len(lacks) > 0 {
		return warn("control groups are version 2, without the controllers %s: tasks are not limited in those", strings.Join(lacks, ", ")).fix("cat /sys/fs/cgroup/cgroup.controllers")
	}
	if e.status.uid == 0 {
		return ok("control groups are version 2, with%s", strings.TrimRight(has, " "))
	}
	_, own, _ := strings.Cut(e.text("proc/self/cgroup"), "0::")
	own = oneLine(own)
	if info := e.stat("sys/fs/cgroup" + own + "/cgroup.subtree_control"); info == nil || !e.canUse(info) {
		return warn("control group %s is not this user's to divide: the CPU and memory of tasks are not limited", own).
			fix("sudo gpupool service install    # its unit has Delegate=yes")
	}
	return ok("control groups are version 2, and %s is this user's to divide", own)
}

// kernelArgument is how a setting of the kernel is made to last here.
func (e *exam) kernelArgument(arg string) []string {
	if e.which("grubby") != "" {
		return []string{"sudo grubby --update-kernel=ALL --args=" + arg, "sudo reboot"}
	}
	return []string{`sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&` + arg + ` /' /etc/default/grub`, "sudo update-grub", "sudo reboot"}
}

// clockStep is how far the wall clock may drift from the one that only runs on while both are watched.
const clockStep = 50 * time.Millisecond

// clock: does something keep the machine's time?
func (e *exam) clock() Result {
	c, err := e.o.System.Clock()
	service := e.timeService()
	switch {
	case err != nil:
		return skip("the kernel does not tell how its clock is kept: %s", err)
	case c.Step.Abs() > clockStep:
		return warn("the clock was set by %s within %s: times in reports jump with it", c.Step.Round(time.Millisecond), c.Watched.Round(time.Millisecond)).fix("timedatectl timesync-status || chronyc tracking")
	case !c.Synced && service != "":
		return warn("%s runs, and the clock is not kept by it yet (it may be off by %s)", service, c.MaxError.Round(time.Millisecond)).fix("timedatectl timesync-status || chronyc tracking")
	case !c.Synced:
		return warn("nobody keeps the clock: times in reports and in the journal drift away from those of other machines").fix("sudo timedatectl set-ntp true || " + e.install("chrony", "chrony"))
	case c.MaxError > time.Second:
		return warn("the clock is kept, and may still be off by %s", c.MaxError.Round(time.Millisecond)).fix("timedatectl timesync-status || chronyc tracking")
	}
	return ok("the clock is kept, within %s", c.MaxError.Round(time.Microsecond))
}

// timeService is the program that sets the clock, if one is running.
func (e *exam) timeService() string {
	for _, dir := range e.glob("proc/[0-9]*") {
		switch name := e.program(dir); name {
		case "chronyd", "ntpd", "systemd-timesyncd", "openntpd", "ntpsec", "ptp4l", "phc2sys":
			return name
		}
	}
	return ""
}

// filesWanted is enough for a stream to each of a thousand clients and the logs of as many members.
const filesWanted = 4096

// files: how many may be open? Go raises the soft limit to the hard one by itself.
func (e *exam) files() Result {
	for line := range strings.Lines(e.text("proc/self/limits")) {
		rest, is := strings.CutPrefix(line, "Max open files")
		f := strings.Fields(rest)
		if !is || len(f) < 2 {
			continue
		}
		if n, err := strconv.Atoi(f[1]); err == nil && n < filesWanted {
			return warn("%d files may be open at once, and a busy pool needs %d", n, filesWanted).
				fix("ulimit -Hn 65536    # in a shell; the systemd unit has LimitNOFILE")
		}
		return ok("%s files may be open at once", f[1])
	}
	return skip("the kernel does not tell how many files may be open")
}

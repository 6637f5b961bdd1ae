// Package doctor looks at a machine and says whether gpupool can run there: each
// check ends as ok, warn, fail or skip, with a sentence and the command that mends it.
// It changes nothing; of the data folder it asks System.Disk, which writes and removes
// a small file there.
//
// A run looks at each GPU, each process and each of its open files once. The machine's
// files, its commands and what NVML says come from outside, so that tests run against
// trees of files.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Level says how a check ended.
type Level string

// The levels, from good to bad; Skip says that there was nothing to look at.
const (
	OK   Level = "ok"
	Skip Level = "skip"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Effect says what does not work while a check fails.
type Effect string

// The effects, from worst to least.
const (
	Start      Effect = "start"      // gpupool does not start
	GPUs       Effect = "gpus"       // no real GPU can be used
	MIG        Effect = "mig"        // GPUs cannot be cut
	Containers Effect = "containers" // tasks cannot run in containers
	Limits     Effect = "limits"     // something works less well than it could
)

// Result is how one check ended.
type Result struct {
	Group  string   `json:"group"`
	Check  string   `json:"check"`
	Level  Level    `json:"level"`
	Text   string   `json:"text"`             // one sentence
	Fix    []string `json:"fix,omitempty"`    // commands that mend it, in order
	Detail []string `json:"detail,omitempty"` // what else is to know, such as a line for each GPU
	Effect Effect   `json:"effect,omitempty"` // of warn and fail
}

// Report is all of it.
type Report struct {
	Results []Result `json:"results"`
	Passed  int      `json:"ok"`
	Warned  int      `json:"warn"`
	Failed  int      `json:"fail"`
	Skipped int      `json:"skip"`
	Verdict string   `json:"verdict"` // what gpupool would do here
}

// Hardware is what the driver's own library says.
type Hardware struct {
	Driver string `json:"driver"` // such as 570.124.06
	Source string `json:"source"` // who said it: NVML, nvidia-smi
	GPUs   []GPU  `json:"gpus"`
}

// GPU is one of them. What is not known is empty.
type GPU struct {
	Index       int    `json:"index"`
	Minor       int    `json:"minor"` // of /dev/nvidiaN
	Name        string `json:"name"`  // such as NVIDIA H100 80GB HBM3
	UUID        string `json:"uuid"`
	MemoryMiB   int64  `json:"memory_mib"`  // 0: unknown
	MIG         string `json:"mig"`         // "on", "off", or "none" where the board has no MIG
	MIGPending  string `json:"mig_pending"` // the mode after the next reset, as MIG
	Instances   int    `json:"instances"`   // GPU instances that stand
	Persistence string `json:"persistence"` // "on", "off"
	ECC         string `json:"ecc"`         // "on", "off", "none"
	Recovery    string `json:"recovery"`    // what the driver wants done: "none", "reset", "reboot", "drain_p2p", "drain_and_reset", ...
}

// ErrNoNVML is what Options.Hardware answers when this binary was built without NVML.
var ErrNoNVML = errors.New("this gpupool was built without NVML (CGO_ENABLED=0)")

// Options say what to look at.
type Options struct {
	System   System
	Hardware func(context.Context) (Hardware, error)                       // asks NVML; nil: there is nobody to ask
	Data     string                                                        // folder of the journal
	Listen   string                                                        // address that the server takes
	Redis    func(context.Context) (where string, risks []string, e error) // asks the store of several servers; nil: the journal is a file
	Server   func(context.Context) (url string, e error)                   // asks the server that uses Data; nil: none ever did
	Journal  func(context.Context, string) error                           // reads the journal in Data while nobody has it open
}

// check is one of them.
type check struct {
	group, name string
	run         func(*exam) Result
}

func checks() []check {
	const gpus, sharing, containers, machine, pool = "GPUs", "Sharing", "Containers", "Machine", "gpupool"
	return []check{
		{gpus, "module", (*exam).module},
		{gpus, "library", (*exam).library},
		{gpus, "driver", (*exam).driver},
		{gpus, "nodes", (*exam).nodes},
		{gpus, "health", (*exam).health},
		{gpus, "fabric", (*exam).fabric},
		{gpus, "persistence", (*exam).persistence},
		{sharing, "mig", (*exam).mig},
		{sharing, "mig-clients", (*exam).clients},
		{sharing, "mig-nodes", (*exam).caps},
		{sharing, "mps", (*exam).mps},
		{sharing, "park", (*exam).park},
		{containers, "podman", (*exam).podman},
		{containers, "runtime", (*exam).runtime},
		{containers, "cdi", (*exam).cdi},
		{containers, "visible-devices", (*exam).visible},
		{machine, "rights", (*exam).rights},
		{machine, "cgroup", (*exam).cgroup},
		{machine, "clock", (*exam).clock},
		{machine, "files", (*exam).files},
		{pool, "data", (*exam).data},
		{pool, "disk", (*exam).disk},
		{pool, "server", (*exam).server},
		{pool, "port", (*exam).port},
		{pool, "journal", (*exam).journal},
		{pool, "redis", (*exam).redis},
	}
}

// Examine makes every check, in order.
func Examine(ctx context.Context, o Options) Report {
	e := newExam(ctx, o)
	var r Report
	for _, c := range checks() {
		res := c.run(e)
		res.Group, res.Check = c.group, c.name
		switch res.Level {
		case OK:
			r.Passed++
		case Warn:
			r.Warned++
		case Fail:
			r.Failed++
		case Skip:
			r.Skipped++
		}
		r.Results = append(r.Results, res)
	}
	r.Verdict = verdict(r.Results, e)
	return r
}

// Exit is the exit code: 1 where a check fails.
func (r Report) Exit() int {
	if r.Failed > 0 {
		return 1
	}
	return 0
}

// verdict says what gpupool would do here, by the worst that fails.
func verdict(rs []Result, e *exam) string {
	bad := map[Effect]bool{}
	for _, r := range rs {
		if r.Level == Fail {
			bad[r.Effect] = true
		}
	}
	gpus := "GPU"
	if n := len(e.gpus); n > 1 {
		gpus = plural(n, "GPU")
	}
	switch {
	case bad[Start]:
		return "gpupool would not start here"
	case bad[GPUs]:
		return "gpupool would run here with fake GPUs only"
	case bad[MIG]:
		return "gpupool would share the " + gpus + " here without MIG"
	case bad[Containers]:
		return "gpupool would share the " + gpus + " here, with tasks as processes only"
	}
	return "gpupool would share the " + gpus + " here"
}

func ok(format string, args ...any) Result {
	return Result{Level: OK, Text: fmt.Sprintf(format, args...)}
}

func skip(format string, args ...any) Result {
	return Result{Level: Skip, Text: fmt.Sprintf(format, args...)}
}

func warn(format string, args ...any) Result {
	return Result{Level: Warn, Effect: Limits, Text: fmt.Sprintf(format, args...)}
}

func fail(effect Effect, format string, args ...any) Result {
	return Result{Level: Fail, Effect: effect, Text: fmt.Sprintf(format, args...)}
}

// fix adds commands that mend it.
func (r Result) fix(cmds ...string) Result {
	r.Fix = append(r.Fix, cmds...)
	return r
}

// with adds lines of detail.
func (r Result) with(lines ...string) Result {
	r.Detail = append(r.Detail, lines...)
	return r
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// oneLine keeps a text that others wrote to its first line.
func oneLine(s string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(first)
}

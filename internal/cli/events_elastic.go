package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/work"
)

// moveText puts the facts about what is done with running tasks, and about modes, into
// words. Of another kind it says nothing.
func moveText(ev apitype.Event, raw []byte) (string, error) {
	switch ev.Kind {
	case "task.use":
		return in(raw, func(f useFact) string { return f.words(ev.At) })
	case "task.suspending":
		return in(raw, func(f reasonFact) string { return "is being suspended: " + f.Reason.Message })
	case "task.suspended":
		return in(raw, suspendedFact.words)
	case "task.woken":
		return in(raw, func(f heldFact) string { return "woken by " + f.By })
	case "task.resuming":
		return "goes on where it is", nil
	case "task.resumed":
		return "runs again", nil
	case "task.movefailed":
		return in(raw, moveFact.words)
	case "task.sized":
		return in(raw, sizedFact.words)
	case "task.planned":
		return in(raw, func(f plannedFact) string { return f.words(ev.At) })
	case "task.dropped":
		return in(raw, func(f moveFact) string { return "what was announced is not done: " + f.Why })
	case "part.resizing":
		return in(raw, resizingFact.words)
	case "part.resized":
		return in(raw, func(f ownerFact) string { return f.Owner.of() + "has its new size" })
	case "pair.parted":
		return in(raw, func(f partedFact) string { return f.words(ev.At) })
	}
	return "", nil
}

type reasonFact struct {
	Reason apitype.Reason `json:"reason"`
}

type useFact struct {
	Use struct {
		Kind    string  `json:"kind"`
		Since   int64   `json:"since"`
		Compute float64 `json:"compute"`
		MemMiB  int64   `json:"memory_mib"`
	} `json:"use"`
}

func (f useFact) words(now time.Time) string {
	if f.Use.Kind == "" {
		return "how it uses its GPUs is not known"
	}
	return usageText(apitype.Judged{Kind: f.Use.Kind, Since: time.Unix(0, f.Use.Since), Compute: f.Use.Compute, MemoryMiB: f.Use.MemMiB}, now)
}

type suspendedFact struct {
	MemMiB int64 `json:"memory_mib"`
}

func (f suspendedFact) words() string {
	words := "is suspended; its GPUs are being freed"
	if f.MemMiB > 0 {
		words += ", and it held " + work.FormatMiB(f.MemMiB) + " of their memory"
	}
	return words
}

type moveFact struct {
	Move string `json:"move"`
	Why  string `json:"why"`
}

func (f moveFact) words() string {
	words := f.Move + " failed: " + f.Why
	if f.Move == string(work.MovePark) || f.Move == string(work.MoveResize) {
		words += "; it runs on as it was"
	}
	return words
}

type sizedFact struct {
	Request *work.Request `json:"request"`
	By      string        `json:"by"`
}

func (f sizedFact) words() string {
	words := "asks for what it was submitted with"
	if f.Request != nil {
		words = "asks for " + f.Request.String()
	}
	if f.By != "" {
		return words + ", as " + f.By + " says"
	}
	return words + "; its pool sees to its size"
}

type plannedFact struct {
	Plan struct {
		Move   string         `json:"move"`
		At     int64          `json:"at"`
		To     *work.Request  `json:"to"`
		For    uint64         `json:"for"`
		Reason apitype.Reason `json:"reason"`
	} `json:"plan"`
}

func (f plannedFact) words(now time.Time) string {
	p := apitype.Plan{Move: f.Plan.Move, At: time.Unix(0, f.Plan.At), For: f.Plan.For, Reason: f.Plan.Reason}
	if f.Plan.To != nil {
		p.To = f.Plan.To.String()
	}
	return plannedText(p, now)
}

type resizingFact struct {
	Owner  member         `json:"owner"`
	Slices []work.Slice   `json:"slices"`
	Reason apitype.Reason `json:"reason"`
}

func (f resizingFact) words() string {
	words := f.Owner.of() + "is to have " + sliceNames(f.Slices) + " in place"
	if f.Reason.Message != "" {
		words += ": " + f.Reason.Message
	}
	return words
}

type partedFact struct {
	Pair  [2]string `json:"pair"`
	Until int64     `json:"until"`
	Why   string    `json:"why"`
}

func (f partedFact) words(now time.Time) string {
	words := fmt.Sprintf("%s and %s share no GPU until %s", f.Pair[0], f.Pair[1], clock(time.Unix(0, f.Until), now))
	if f.Pair[0] == f.Pair[1] {
		words = fmt.Sprintf("no two of %s share a GPU until %s", f.Pair[0], clock(time.Unix(0, f.Until), now))
	}
	if f.Why != "" {
		words += ": " + f.Why
	}
	return words
}

// sliceNames writes slices as people say them.
func sliceNames(all []work.Slice) string {
	var out []string
	for _, s := range all {
		if s.Share == nil && s.Mode == "shared" { // damaged: nothing can be said of its size
			out = append(out, fmt.Sprintf("a share of GPU %d", s.GPU))
			continue
		}
		out = append(out, s.String())
	}
	if len(out) == 0 {
		return "CPU and memory only"
	}
	return strings.Join(out, ", ")
}

package apitype

import (
	"maps"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Judged is how a task uses its GPUs, over a while.
type Judged struct {
	Kind      string    `json:"kind" doc:"idle, light, steady or hot, or another word in a later version" example:"idle"`
	Since     time.Time `json:"since"`
	Compute   float64   `json:"compute,omitempty" doc:"Share of their compute that it stayed under for 95 % of the last while"`
	MemoryMiB int64     `json:"memory_mib,omitempty" doc:"GPU memory that it holds; absent when none, or not known"`
}

// Plan is a move of a running task that was announced. It is looked at again when its time
// has come, and made if it is still of use.
type Plan struct {
	Move   string    `json:"move" doc:"restart: at another size. move: at another place. Or another word in a later version" example:"restart"`
	At     time.Time `json:"at"`
	To     string    `json:"to,omitempty" doc:"What each member asks for then, in words; absent when that stays" example:"2 whole GPUs"`
	For    uint64    `json:"for,omitempty" doc:"The task that waits for what it gives up, if it is of the same tenant"`
	Reason Reason    `json:"reason"`
}

// Resize is another size for a task.
type Resize struct {
	GPUs string `json:"gpus" minLength:"1" maxLength:"32" doc:"Whole GPUs of each member, or a fraction of one, as the task was submitted; auto leaves its size to the pool again" example:"4"`
}

// SizeAuto leaves the size of a task to its pool.
const SizeAuto = "auto"

// Milli is the size in thousandths of GPUs; 0 for auto.
func (r Resize) Milli() (int, error) {
	if strings.EqualFold(strings.TrimSpace(r.GPUs), SizeAuto) {
		return 0, nil
	}
	n, err := milliOf("size", r.GPUs)
	if err == nil && n == 0 {
		err = work.Errorf(work.CodeInvalid, "a size is missing: expected a number of GPUs (2), a fraction of one (0.5, 1/7), or %s", SizeAuto)
	}
	return n, err
}

// upTo splits 2..8:H100-80GB into what is asked for, 2:H100-80GB, and the most, 8.
func upTo(gpus, most string) (string, string, error) {
	low, high, is := strings.Cut(gpus, "..")
	high, model, has := strings.Cut(high, ":")
	switch {
	case !is:
		return gpus, most, nil
	case most != "":
		return "", "", work.Errorf(work.CodeInvalid, "the most of GPUs is given twice, as gpus %s and as max %s: leave one out", gpus, most)
	case low == "" || high == "" || strings.Contains(high, ".."):
		return "", "", work.Errorf(work.CodeInvalid, "GPU request %q is not understood: expected what it asks for and the most it can use with .. between, such as 2..8", gpus)
	case has:
		low += ":" + model
	}
	return low, high, nil
}

// elastic is what may be done with the task while it runs.
func (s TaskSpec) elastic(most string) (out work.Elastic, err error) {
	out = work.Elastic{OnIdle: work.IdleAction(s.OnIdle), OnResize: work.ResizeAction(s.OnResize), Signal: s.Signal,
		NoShare: s.NoShare, NoPreempt: s.NoPreempt, Labels: maps.Clone(s.Labels)}
	if out.MinMilli, err = milliOf("min", s.Min); err != nil {
		return out, err
	}
	out.MaxMilli, err = milliOf("max", most)
	return out, err
}

// milliOf reads a number of GPUs, or a fraction of one, in thousandths; none is 0.
func milliOf(what, text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	r, err := work.ParseGPUs(text)
	n := 1000*r.GPUs + r.Milli
	if err != nil || n == 0 || len(r.Models) > 0 {
		return 0, work.Errorf(work.CodeInvalid, "%s %q is not understood: expected a number of GPUs (2) or a fraction of one (0.5, 1/7)", what, text)
	}
	return n, nil
}

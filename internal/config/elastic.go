package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Elastic is about taking back what idles.
type Elastic struct {
	Low  Percent `yaml:"low_mark" default:"60%" doc:"Utilisation under which a task is judged light: another size of it, beside others, would do while someone waits."`
	High Percent `yaml:"high_mark" default:"90%" doc:"Utilisation over which a task is judged hot: it gets more of its GPU where nobody needs it."`
	Idle Percent `yaml:"idle_mark" default:"70%" doc:"Utilisation that a light task must pass, and a hot one fall under, to be judged anew."`
	None Percent `yaml:"idle_below" default:"5%" doc:"Utilisation that counts as none: monitoring and a stray kernel are no use."`

	OnIdle     OnIdle   `yaml:"on_idle" doc:"What to do in dynamic pools with tasks whose GPUs are not used and that do not say (--on-idle): keep, share (others of their tenant come to their GPUs), park (suspend them and lend their GPUs) or stop."`
	IdleAfter  After    `yaml:"idle_after" doc:"Unused for so long, it is done although nobody waits. When someone waits it is done sooner: once a task has idled for as long as parking and waking it takes."`
	Cooldown   Duration `yaml:"cooldown" default:"2m" doc:"Between two moves of one task, so that it gets somewhere."`
	Warn       Duration `yaml:"warn" default:"30s" doc:"Between the announcement of a restart for another size or place and the restart, so that who watches can see it coming."`
	PerHour    int      `yaml:"per_hour" default:"60" doc:"Such restarts in a pool in any hour at most, so that they cannot make it thrash."`
	PerTask    int      `yaml:"per_task" default:"2" doc:"Such restarts of one task in any hour at most."`
	Exempt     []string `yaml:"exempt,omitempty" example:"[team-a, keep=yes]" doc:"Tenants, and labels as key=value, that nothing is taken from."`
	Checkpoint []string `yaml:"gpu_checkpoint,omitempty" example:"[cuda-checkpoint]" doc:"Command that moves the GPU memory of a process to main memory and back, as NVIDIA's cuda-checkpoint does. Without one, what is suspended keeps its GPU memory, and parking helps only where guests find room beside it."`

	Scan Duration `yaml:"scan_every" default:"5s" doc:"Between two looks at the GPUs and their use."`
}

// OnIdle says what to do with idle tasks, by their class.
type OnIdle struct {
	Training    string `yaml:"training" default:"keep" enum:"keep,share,park,stop" doc:"It may wait for data, and cannot say so."`
	Inference   string `yaml:"inference" default:"keep" enum:"keep,share,park,stop" doc:"Park it where whoever calls it wakes it first (gpupool wake)."`
	Interactive string `yaml:"interactive" default:"keep" enum:"keep,share,park,stop" doc:"Park it where its user can wake it (gpupool wake)."`
}

// After says how long a task idles before something is done although nobody waits, by its
// class.
type After struct {
	Training    Duration `yaml:"training" default:"30m" doc:"Longer than loading data, or writing a checkpoint, takes."`
	Inference   Duration `yaml:"inference" default:"30m" doc:"Longer than a gap between requests to a model that is in use."`
	Interactive Duration `yaml:"interactive" default:"30m" doc:"Longer than a look at a plot, shorter than a meeting."`
}

// UnmarshalYAML reads one duration for all classes, or one for each that is named.
func (a *After) UnmarshalYAML(read func(any) error) error {
	var one string
	if err := read(&one); err == nil {
		var all Duration
		err := all.UnmarshalText([]byte(one))
		*a = After{all, all, all}
		return err
	}
	type plain After // without this method
	return read((*plain)(a))
}

func classes() []work.Class { return []work.Class{work.Training, work.Inference, work.Interactive} }

func (x Elastic) ranges() []inRange {
	out := []inRange{
		{"elastic.scan_every (seconds)", 0.1, 3600, time.Duration(x.Scan).Seconds()},
		{"elastic.cooldown (seconds)", 1, 86400, time.Duration(x.Cooldown).Seconds()},
		{"elastic.warn (seconds)", 1, 86400, time.Duration(x.Warn).Seconds()},
		{"elastic.per_hour", 1, 1e6, float64(x.PerHour)},
		{"elastic.per_task", 1, 3600, float64(x.PerTask)},
	}
	for _, c := range classes() {
		out = append(out, inRange{"elastic.idle_after." + string(c) + " (seconds)", 10, 30 * 86400, x.IdleAfter.of(c).Seconds()})
	}
	return out
}

func (x Elastic) check() error {
	if x.Low > x.High {
		return fmt.Errorf("elastic.low_mark: expected at most high_mark (%s), got %s", x.High, x.Low)
	}
	for _, c := range classes() {
		switch a := x.OnIdle.of(c); a {
		case work.IdleKeep, work.IdleShare, work.IdlePark, work.IdleStop:
		default:
			return fmt.Errorf("elastic.on_idle.%s: expected keep, share, park or stop, got %q", c, a)
		}
	}
	for i, e := range x.Exempt {
		if k, _, label := strings.Cut(e, "="); e == "" || label && k == "" || strings.ContainsAny(k, " \t\n") {
			return fmt.Errorf("elastic.exempt[%d]: expected a tenant, or a label as key=value, got %q", i, e)
		}
	}
	return nil
}

func (o OnIdle) of(c work.Class) work.IdleAction {
	switch c {
	case work.Training:
		return work.IdleAction(o.Training)
	case work.Inference:
		return work.IdleAction(o.Inference)
	}
	return work.IdleAction(o.Interactive)
}

func (a After) of(c work.Class) time.Duration {
	switch c {
	case work.Training:
		return time.Duration(a.Training)
	case work.Inference:
		return time.Duration(a.Inference)
	}
	return time.Duration(a.Interactive)
}

// pool is the section in core words.
func (x Elastic) pool() work.PoolElastic {
	out := work.PoolElastic{Low: float64(x.Low), High: float64(x.High), Spare: float64(x.Idle), IdleBelow: float64(x.None), Cooldown: time.Duration(x.Cooldown), Exempt: x.Exempt,
		Warn: time.Duration(x.Warn), PerHour: x.PerHour, PerTask: x.PerTask,
		OnIdle: map[work.Class]work.IdleAction{}, After: map[work.Class]time.Duration{}}
	for _, c := range classes() {
		out.OnIdle[c], out.After[c] = x.OnIdle.of(c), x.IdleAfter.of(c)
	}
	return out
}

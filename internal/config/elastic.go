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
	Checkpoint []string `yaml:"gpu_checkpoint,omitempty" example:"[cuda-checkpoint]" doc:"Command that moves the GPU memory of a process to main memory and back, as NVIDIA's cuda-checkpoint does. Empty: gpupool does it itself where the driver can (570 or later); elsewhere what is suspended keeps its GPU memory, and parking helps only where guests find room beside it."`

	Guard Guard `yaml:"guard" doc:"A dynamic pool that passes one of these becomes static by itself, says why, and stays so until someone sets another mode (gpupool pools set-mode). 0: no bound."`

	Scan Duration `yaml:"scan_every" default:"5s" doc:"Between two looks at the GPUs and their use."`
}

// Guard is how much a pool may move.
type Guard struct {
	Window   Duration `yaml:"window" default:"30m" doc:"That is looked at: long enough that the moves of a pool which has just been made dynamic do not count as too many."`
	Moves    float64  `yaml:"moves_per_hour" default:"30" doc:"Moves of a task in an hour, of 20 at least: parking and waking every four minutes is no rest for anybody."`
	Failed   Percent  `yaml:"failed_moves" default:"20%" doc:"Share of the moves that failed, of 10 at least: something outside is broken, and each costs its task time."`
	Carves   int      `yaml:"failed_carves" default:"10" doc:"Slices that could not be made within 10 minutes: static pools cut nothing."`
	Slowdown Percent  `yaml:"slowdown" default:"50%" doc:"Time that woken tasks waited to go on, over the time that they then ran, of 20 wakes at least: the GPUs are too few for those who share them."`
}

// bounds are the guard's in core words, where 0 means the default.
func (g Guard) bounds() work.Guard {
	off := func(x float64) float64 {
		if x == 0 {
			return -1
		}
		return x
	}
	return work.Guard{Window: time.Duration(g.Window), Moves: off(g.Moves), FailedMoves: off(float64(g.Failed)), Carves: int(off(float64(g.Carves))), Slowdown: off(float64(g.Slowdown))}
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
		{"elastic.guard.window (seconds)", 60, 86400, time.Duration(x.Guard.Window).Seconds()},
		{"elastic.guard.moves_per_hour", 0, 1e6, x.Guard.Moves},
		{"elastic.guard.failed_moves", 0, 1, float64(x.Guard.Failed)},
		{"elastic.guard.failed_carves", 0, 99, float64(x.Guard.Carves)},
		{"elastic.guard.slowdown", 0, 1000, float64(x.Guard.Slowdown)},
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
		Warn: time.Duration(x.Warn), PerHour: x.PerHour, PerTask: x.PerTask, Guard: x.Guard.bounds(),
		OnIdle: map[work.Class]work.IdleAction{}, After: map[work.Class]time.Duration{}}
	for _, c := range classes() {
		out.OnIdle[c], out.After[c] = x.OnIdle.of(c), x.IdleAfter.of(c)
	}
	return out
}

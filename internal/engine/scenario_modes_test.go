package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gpupool/gpupool/internal/work"
)

// What the scenarios and histories about modes read and show.

// orShadow is shadow now and then in place of static, which behaves alike.
func (w *world) orShadow(m work.PoolMode) work.PoolMode {
	if m == work.Static && w.modes.IntN(2) == 0 {
		return work.Shadow
	}
	return m
}

// someGuard is strict now and then, but not where resizes are what is looked for.
func (w *world) someGuard() work.Guard {
	if w.supple {
		return work.NoGuard()
	}
	all := []work.Guard{{}, {}, {}, {}, {FailedMoves: 0.05}, {Carves: 1}, {Window: 5 * time.Minute, Slowdown: 0.01, Moves: 0.5}}
	return all[w.modes.IntN(len(all))]
}

// readGuard reads window:DURATION, moves:N, failed:SHARE, carves:N and slowdown:SHARE.
func readGuard(g *work.Guard, vals []string) (err error) {
	for _, v := range vals {
		key, x, _ := strings.Cut(v, ":")
		switch key {
		case "window":
			g.Window, err = time.ParseDuration(x)
		case "moves":
			g.Moves, err = strconv.ParseFloat(x, 64)
		case "failed":
			g.FailedMoves, err = strconv.ParseFloat(x, 64)
		case "carves":
			g.Carves, err = strconv.Atoi(x)
		case "slowdown":
			g.Slowdown, err = strconv.ParseFloat(x, 64)
		default:
			err = fmt.Errorf("bound %q is not known", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func modeLine(f ModeSet) string {
	line := "pool " + f.Pool
	if f.Tenant != "" {
		line += " for tenant " + f.Tenant
	}
	mode := string(f.Mode)
	if mode == "" {
		mode = "as it was"
	}
	line += fmt.Sprintf(" is %s, by %s: %s", mode, f.By, f.Reason)
	for _, l := range f.Log {
		line += "\n  | " + l
	}
	return line
}

func (s *story) modes(name string) string {
	p := s.e.pools[name].view()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: settings %s, in force %s, fell back %d times\n", p.Name, p.Mode, p.InForce, p.Fallbacks)
	var tenants []string
	for t, m := range p.Tenants { // order: sorted below
		tenants = append(tenants, fmt.Sprintf("tenant %s: %s", t, m))
	}
	slices.Sort(tenants)
	for _, t := range tenants {
		fmt.Fprintln(&b, t)
	}
	if p.Unsettled != "" {
		fmt.Fprintln(&b, p.Unsettled)
	}
	return b.String()
}

// repeat plays directives again and again.
func (s *story) repeat(t *testing.T, d *datadriven.TestData) (last string) {
	for range number(t, d, 0) {
		last = ""
		for line := range strings.Lines(d.Input) {
			cmd, args, err := datadriven.ParseLine(line)
			if err != nil {
				t.Fatal(err)
			}
			last += s.directive(t, &datadriven.TestData{Cmd: cmd, CmdArgs: args})
		}
	}
	return last
}

func (s *story) shadow(pool string) string {
	x, err := s.e.Shadow(pool)
	if err != nil {
		return fmt.Sprintln("!", err)
	}
	return fmt.Sprintf("for %s: holds %.2f GPUs, would hold %.2f, at most %g, needs %d; %d parks, %d wakes; idle %.0f %%, would be %.0f %%\n",
		x.For.Round(time.Second), x.Static, x.Mean, x.Most, x.GPUs, x.Parks, x.Wakes, 100*x.Idle, 100*x.IdleIf)
}

func (s *story) rolloutLine(f Fact) string {
	switch f := f.(type) {
	case RolloutBegan:
		return "rollout begins: " + f.Rollout.Words(s.now)[0]
	case RolloutStepped:
		line := fmt.Sprintf("rollout: %s is on trial for %s; before: %s", s.e.rollout.Steps[f.Step], f.Until.Sub(s.now), f.Baseline)
		if f.Step > 0 {
			line += fmt.Sprintf("; %s passed: %s", s.e.rollout.Steps[f.Step-1], f.Passed)
		}
		return line
	case RolloutEnded:
		return fmt.Sprintf("rollout ends, %s: %s; on trial: %s", f.How, f.Why, f.Trial)
	}
	return ""
}

func rollOut(t *testing.T, d *datadriven.TestData) Event {
	ev := StartRollout{By: "ann"}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "pools":
			ev.Pools = a.Vals
		case "tenants":
			ev.Tenants = a.Vals
		case "to":
			ev.Mode = work.PoolMode(a.Vals[0])
		}
	}
	duration(t, d, "step", &ev.For)
	decimal(t, d, "waits", &ev.Waits)
	return ev
}

// rollEvent begins or ends a rollout.
func (w *world) rollEvent() Event {
	switch w.modes.IntN(6) {
	case 0:
		return StopRollout{w.modes.IntN(2) == 0, "ann"}
	case 1:
		return StartRollout{Pools: []string{"main", "rest"}, For: time.Minute, Mode: work.Shadow, By: "ann"}
	case 2:
		return StartRollout{Pools: []string{"main"}, Tenants: []string{"a", "c"}, For: 90 * time.Second, By: "ann"}
	case 3:
		return SetMode{"rest", work.Shadow, "ann"}
	}
	return StartRollout{Pools: []string{"main"}, For: time.Minute, Waits: 1 + w.modes.Float64(), By: "ann"}
}

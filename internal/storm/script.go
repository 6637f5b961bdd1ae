package storm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// script says a history as far as the engine sees it, in the words of testdata/scenarios. What
// comes out of each event is left empty: go test ./internal/engine -run Scenarios -rewrite
// fills it in.
type script struct {
	text   strings.Builder
	now    work.Time
	hosts  map[string]bool // that were named
	away   map[string]bool
	broken map[string]bool
	unsaid int // events that have no words
}

func newScript(cfg engine.Config) *script {
	s := &script{now: begins, hosts: map[string]bool{}, away: map[string]bool{}, broken: map[string]bool{}}
	s.say(fmt.Sprintf("config keep-ended=%d alloc-retries=%d", cfg.KeepEnded, cfg.AllocRetries))
	return s
}

// say writes one directive.
func (s *script) say(line string, input ...string) {
	s.text.WriteString(line + "\n")
	for _, x := range input {
		s.text.WriteString(x + "\n")
	}
	s.text.WriteString("----\n\n")
}

func (s *script) restarted() {
	if s.text.Len() > 0 {
		s.say("restore")
	}
}

// event writes an event and the time that passed before it.
func (s *script) event(now work.Time, ev engine.Event) {
	if _, is := ev.(engine.Tick); !is && now > s.now {
		s.say("tick " + now.Sub(s.now).String())
	}
	was := s.now
	s.now = max(s.now, now)
	switch ev := ev.(type) {
	case engine.Tick:
		s.say("tick " + s.now.Sub(was).String())
	case engine.Inventory:
		s.inventory(ev)
	case engine.SetPools:
		var lines []string
		for _, p := range ev.Pools {
			lines = append(lines, poolLine(p))
		}
		s.say("pools", lines...)
	case engine.ProcessesSeen:
		var lines []string
		for _, o := range ev.Owners {
			lines = append(lines, o.String())
		}
		s.say("seen", lines...)
	case engine.Usage:
		for _, x := range ev.Samples {
			s.say(fmt.Sprintf("used %d %g for=%s mem=%d", x.Owner.Task, x.Compute, x.For, x.MemMiB))
		}
	default:
		line := cmpOr(askLine(ev, s.now), answerLine(ev))
		if line == "" {
			s.unsaid++
			fmt.Fprintf(&s.text, "# Not said: %T %+v\n\n", ev, ev)
			return
		}
		s.say(line)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// askLine says what people ask for.
func askLine(ev engine.Event, now work.Time) string {
	switch ev := ev.(type) {
	case engine.Submit:
		return "submit " + specLine(ev.Spec, now)
	case engine.Cancel:
		return fmt.Sprint("cancel ", ev.Task)
	case engine.Hold:
		if ev.On {
			return fmt.Sprint("hold ", ev.Task)
		}
		return fmt.Sprint("release-hold ", ev.Task)
	case engine.Checkpoint:
		return fmt.Sprint("checkpoint ", ev.Task)
	case engine.Preempt:
		return fmt.Sprint("preempt ", ev.Task)
	case engine.Renew:
		return fmt.Sprintf("renew %d epoch=%d", ev.Task, ev.Epoch)
	case engine.Release:
		return fmt.Sprintf("release %d epoch=%d", ev.Task, ev.Epoch)
	case engine.Wake:
		return fmt.Sprint("wake ", ev.Task)
	case engine.Park:
		return fmt.Sprint("park ", ev.Task)
	case engine.Resize:
		return fmt.Sprint("resize ", ev.Task, " ", ev.Milli)
	case engine.SetMode:
		return fmt.Sprint("mode ", ev.Pool, " ", ev.Mode)
	case engine.SetTenant:
		return tenantLine(ev.Tenant)
	case engine.RemoveTenant:
		return "tenant " + ev.Name + " remove"
	case engine.StopRollout:
		return "stop-rollout" + arg("keep", ev.Keep)
	case engine.StartRollout:
		return "roll-out" + list("pools", ev.Pools) + list("tenants", ev.Tenants) + given("to", string(ev.Mode)) + lasting("step", ev.For) + number("waits", ev.Waits)
	case engine.Resume:
		return "resume"
	}
	return ""
}

// answerLine says what drivers and runners answer.
func answerLine(ev engine.Event) string {
	say := func(what string, o work.Owner) string {
		return fmt.Sprintf("%s %d epoch=%d member=%d", what, o.Task, o.Epoch, o.Member)
	}
	switch ev := ev.(type) {
	case engine.CarveDone:
		return say("carved", ev.Owner)
	case engine.CarveFailed:
		return say("carve-failed", ev.Owner)
	case engine.FreeDone:
		return say("freed", ev.Owner)
	case engine.FreeFailed:
		return say("free-failed", ev.Owner)
	case engine.StartDone:
		return say("started", ev.Owner)
	case engine.StartFailed:
		return say("start-failed", ev.Owner)
	case engine.ProcessExited:
		return say("exited", ev.Owner) + given("signal", ev.Exit.Signal) + number("code", float64(ev.Exit.Code)) + arg("lost", ev.Exit.Lost != "")
	case engine.ResizeDone:
		return say("resized", ev.Owner)
	case engine.ResizeFailed:
		return say("resize-failed", ev.Owner)
	case engine.SuspendDone:
		return say("suspended", ev.Owner)
	case engine.SuspendFailed:
		return say("suspend-failed", ev.Owner)
	case engine.ResumeDone:
		return say("resumed", ev.Owner)
	case engine.ResumeFailed:
		return say("resume-failed", ev.Owner)
	}
	return ""
}

// inventory says what changed since the last one: a script has no other words for it.
func (s *script) inventory(inv engine.Inventory) {
	if len(s.hosts) == 0 {
		var lines []string
		for _, h := range inv.Hosts {
			s.hosts[h.Name] = true
			lines = append(lines, hostLine(h))
		}
		s.say("hosts", lines...)
		return
	}
	here, broken, changed := map[string]bool{}, map[string]bool{}, false
	for _, h := range inv.Hosts {
		here[h.Name] = true
	}
	for _, v := range inv.Verdicts {
		broken[v.ID] = v.Do == gpu.VerdictBroken
	}
	say := func(is, was bool, what string) bool {
		if is != was {
			s.say(what)
			changed = true
		}
		return is
	}
	for _, name := range sortedKeys(s.hosts) {
		s.away[name] = say(!here[name], s.away[name], map[bool]string{true: "host-lost ", false: "host-back "}[!here[name]]+name)
	}
	for _, h := range inv.Hosts {
		for _, g := range h.GPUs {
			s.broken[g.ID] = say(broken[g.ID], s.broken[g.ID], map[bool]string{true: "gpu-broken ", false: "gpu-repaired "}[broken[g.ID]]+g.ID)
		}
	}
	if !changed {
		s.say("hosts") // the same as before
	}
}

func sortedKeys(m map[string]bool) (out []string) {
	for k := range m { // order: sorted below
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func hostLine(h gpu.HostInfo) string {
	return fmt.Sprintf("%s gpus=%dx%s cpu=%d mem=%s", h.Name, len(h.GPUs), h.GPUs[0].Model, h.CPUMilli/1000, work.FormatMiB(h.MemMiB))
}

// The parts of a line, each with a space before it, or nothing where there is nothing to say.

func arg(name string, on bool) string {
	if !on {
		return ""
	}
	return " " + name
}

func given(name, v string) string {
	if v == "" {
		return ""
	}
	return " " + name + "=" + v
}

func number(name string, v float64) string {
	if v == 0 {
		return ""
	}
	return " " + name + "=" + strconv.FormatFloat(v, 'g', -1, 64)
}

func lasting(name string, d time.Duration) string {
	if d == 0 {
		return ""
	}
	return " " + name + "=" + d.String()
}

func list[T any](name string, xs []T) string {
	if len(xs) == 0 {
		return ""
	}
	words := make([]string, len(xs))
	for i, x := range xs {
		words[i] = fmt.Sprint(x)
	}
	return " " + name + "=(" + strings.Join(words, ",") + ")"
}

package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// TestScenarios plays the stories in testdata/scenarios. Run with -rewrite to
// take what comes out as what is wanted, and then read the difference.
//
// Every directive is one event; its output is the reply ("= task 1" or "! code:
// message"), the facts ("+") and the commands (">"). After each event all
// invariants are checked, and at the end of a file that replay and a restored
// snapshot give the same state. The directives are the methods of story.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := newStory(Config{Models: testModels})
			datadriven.RunTest(t, file, s.directive)
			if err := s.ledger.Same(s.e); err != nil {
				t.Error(err)
			}
		})
	}
}

// story is an engine with a script, and with the answers that are due to it.
type story struct {
	e      *Engine
	ledger *Ledger
	cfg    Config
	now    work.Time
	hosts  []gpu.HostInfo
	away   map[string]bool
	broken map[string]string
	wants  map[string]Verdict
	faults []Fault
	due    []Command
}

func newStory(cfg Config) *story {
	return &story{e: New(cfg), ledger: NewLedger(cfg), cfg: cfg, now: work.TimeOf(time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)),
		away: map[string]bool{}, broken: map[string]string{}, wants: map[string]Verdict{}}
}

func (s *story) directive(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "config": // alloc-timeout= alloc-retries= keep-ended= grace=; starts over
		cfg := s.cfg
		duration(t, d, "alloc-timeout", &cfg.AllocTimeout)
		d.MaybeScanArgs(t, "alloc-retries", &cfg.AllocRetries)
		d.MaybeScanArgs(t, "keep-ended", &cfg.KeepEnded)
		duration(t, d, "grace", &cfg.Grace)
		*s = *newStory(cfg)
		return ""
	case "explain", "health", "enforced", "tasks", "gpus", "lease", "tenants", "line", "kept", "debts", "pool", "shadow", "rollout":
		return s.view(t, d)
	case "restore": // goes on with an engine made from a snapshot
		b, err := s.e.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if s.e, err = Restore(s.cfg, b); err != nil {
			t.Fatal(err)
		}
		return "ok\n"
	case "repeat": // N; lines: directives, all of them N times over; shows the last round
		return s.repeat(t, d)
	case "obey": // answers every command well until none is left: carved, freed, started, stopped
		return s.obey(t)
	case "tick": // DURATION: time passes, nothing else happens
		var err error
		pass, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(pass)
		return s.step(t, Tick{})
	}
	ev := s.event(t, d)
	if ev == nil {
		t.Fatalf("directive %q is not known", d.Cmd)
	}
	return s.step(t, ev)
}

func (s *story) step(t *testing.T, ev Event) string {
	t.Helper()
	out := s.e.Step(s.now, ev)
	var b strings.Builder
	if out.Task != 0 {
		fmt.Fprintf(&b, "= task %d\n", out.Task)
	}
	if out.Err != nil {
		if e := (*work.Error)(nil); errors.As(out.Err, &e) {
			fmt.Fprintf(&b, "! %s: ", e.Code)
		}
		fmt.Fprintln(&b, out.Err)
	}
	for _, f := range out.Facts {
		fmt.Fprintf(&b, "+ %s\n", s.fact(f))
	}
	for _, c := range out.Commands {
		fmt.Fprintf(&b, "> %s\n", commandLine(c))
	}
	s.due = append(s.due, out.Commands...)
	if err := s.ledger.Add(s.e, out.Facts); err != nil {
		t.Error(err)
	}
	if err := s.e.Check(); err != nil {
		t.Error(err)
	}
	return b.String()
}

// event reads the directives that are events.
func (s *story) event(t *testing.T, d *datadriven.TestData) Event {
	switch d.Cmd {
	case "pools": // lines: NAME [hosts=PATTERN,…] [mode=static] [ttl=1h], and what poolRule knows
		return SetPools{s.pools(t, d)}
	case "tenant": // NAME [limit=GPUS] [guarantee=GPUS] [max-waiting=] [max-running=] [weight=] [remove]
		if d.HasArg("remove") {
			return RemoveTenant{d.CmdArgs[0].Key}
		}
		x := work.Tenant{Name: d.CmdArgs[0].Key}
		decimal(t, d, "limit", &x.LimitGPUs)
		decimal(t, d, "guarantee", &x.GuaranteeGPUs)
		decimal(t, d, "weight", &x.Weight)
		d.MaybeScanArgs(t, "max-waiting", &x.MaxWaiting)
		d.MaybeScanArgs(t, "max-running", &x.MaxRunning)
		return SetTenant{x}
	case "cordon", "drain", "uncordon": // GPU [WORD…]
		do := map[string]gpu.Verdict{"cordon": gpu.VerdictCordon, "drain": gpu.VerdictDrain}[d.Cmd]
		return JudgeGPU{number(t, d, 0), do, strings.Join(words(d)[1:], " "), "ann"}
	case "hosts", "host-lost", "host-back", "gpu-broken", "gpu-repaired", "verdict", "fault", "sharing", "observe":
		return s.inventory(t, d)
	case "submit":
		return Submit{s.spec(t, d)}
	case "hold", "release-hold": // TASK
		return Hold{work.TaskID(number(t, d, 0)), d.Cmd == "hold", "ann"}
	case "checkpoint": // TASK
		return Checkpoint{work.TaskID(number(t, d, 0))}
	case "preempt": // TASK
		return Preempt{work.TaskID(number(t, d, 0)), "ann"}
	case "cancel": // TASK
		return Cancel{work.TaskID(number(t, d, 0)), "ann"}
	case "renew", "release": // TASK [epoch=]
		id := work.TaskID(number(t, d, 0))
		epoch := s.epoch(t, d, id)
		if d.Cmd == "renew" {
			return Renew{id, epoch}
		}
		return Release{id, epoch}
	case "wake", "park": // TASK
		if d.Cmd == "park" {
			return Park{work.TaskID(number(t, d, 0)), "ann"}
		}
		return Wake{work.TaskID(number(t, d, 0)), "ann"}
	case "resize": // TASK THOUSANDTHS
		return Resize{work.TaskID(number(t, d, 0)), number(t, d, 1), "ann"}
	case "mode": // POOL MODE
		return SetMode{d.CmdArgs[0].Key, work.PoolMode(d.CmdArgs[1].Key), "ann"}
	case "roll-out": // POOL,… [tenants=A,…] [to=] [step=] [waits=]
		return rollOut(t, d)
	case "stop-rollout": // [keep]
		return StopRollout{d.HasArg("keep"), "ann"}
	case "used": // TASK COMPUTE [for=5s] [mem=MiB]
		return s.used(t, d)
	case "resume":
		return Resume{}
	case "seen": // lines: OWNER of a process
		var owners []work.Owner
		for line := range strings.Lines(d.Input) {
			var o work.Owner
			if _, err := fmt.Sscanf(line, "%d.%d.%d", &o.Task, &o.Epoch, &o.Member); err != nil {
				t.Fatal(err)
			}
			owners = append(owners, o)
		}
		return ProcessesSeen{owners}
	}
	return s.answer(t, d)
}

// answer reads the directives TASK [member=] [epoch=] that drivers and runners give.
func (s *story) answer(t *testing.T, d *datadriven.TestData) Event {
	id := work.TaskID(number(t, d, 0))
	o := work.Owner{Task: id, Epoch: s.epoch(t, d, id)}
	d.MaybeScanArgs(t, "member", &o.Member)
	var ev Event
	switch d.Cmd {
	case "carved":
		ev = CarveDone{o, []string{fmt.Sprint("device-", o)}}
	case "carve-failed":
		ev = CarveFailed{o, "the driver said no"}
	case "freed":
		ev = FreeDone{o}
	case "free-failed":
		ev = FreeFailed{o, "device busy"}
	case "started":
		ev = StartDone{o}
	case "start-failed":
		ev = StartFailed{o, "no such program"}
	case "exited": // [code=] [signal=]
		x := work.Exit{}
		d.MaybeScanArgs(t, "code", &x.Code)
		d.MaybeScanArgs(t, "signal", &x.Signal)
		ev = ProcessExited{o, x}
	case "resized":
		ev = ResizeDone{Owner: o}
	case "resize-failed":
		ev = ResizeFailed{o, "the driver said no"}
	case "suspended":
		ev = SuspendDone{o}
	case "suspend-failed":
		ev = SuspendFailed{o, "the checkpoint failed"}
	case "resumed":
		ev = ResumeDone{o}
	case "resume-failed":
		ev = ResumeFailed{o, "the restore failed"}
	default:
		return nil
	}
	s.due = slices.DeleteFunc(s.due, func(c Command) bool { return answers(ev, c) })
	return ev
}

// answers reports whether an answer is the one that a command waits for.
func answers(ev Event, c Command) bool {
	switch c := c.(type) {
	case CarveCmd:
		return ev == CarveFailed{c.Owner, "the driver said no"} || fmt.Sprint(ev) == fmt.Sprint(CarveDone{c.Owner, []string{fmt.Sprint("device-", c.Owner)}})
	case FreeCmd:
		return ev == FreeDone{c.Owner} || ev == FreeFailed{c.Owner, "device busy"}
	case StartCmd:
		return ev == StartDone{c.Owner} || ev == StartFailed{c.Owner, "no such program"}
	case StopCmd:
		x, ok := ev.(ProcessExited)
		return ok && x.Owner == c.Owner
	case SuspendCmd:
		return ev == SuspendDone(c) || ev == SuspendFailed{c.Owner, "the checkpoint failed"}
	case ResizeCmd:
		x, ok := ev.(ResizeDone)
		return ok && x.Owner == c.Owner || ev == ResizeFailed{c.Owner, "the driver said no"}
	case ResumeCmd:
		return ev == ResumeDone{c.Owner} || ev == ResumeFailed{c.Owner, "the restore failed"}
	}
	return true // forget and watch have no answer of their own
}

func (s *story) used(t *testing.T, d *datadriven.TestData) Event {
	id := work.TaskID(number(t, d, 0))
	took, mem := 5*time.Second, int64(0)
	duration(t, d, "for", &took)
	d.MaybeScanArgs(t, "mem", &mem)
	compute, err := strconv.ParseFloat(d.CmdArgs[1].Key, 64)
	if err != nil {
		t.Fatal(err)
	}
	return Usage{[]UsageSample{{work.Owner{Task: id, Epoch: s.e.Task(id).Epoch}, took, compute, mem}}}
}

func (s *story) obey(t *testing.T) string {
	var b strings.Builder
	for len(s.due) > 0 {
		c := s.due[0]
		s.due = s.due[1:]
		var ev Event
		switch c := c.(type) {
		case CarveCmd:
			ev = CarveDone{c.Owner, c.GPUIDs}
		case FreeCmd:
			ev = FreeDone{c.Owner}
		case StartCmd:
			ev = StartDone{c.Owner}
		case StopCmd:
			ev = ProcessExited{c.Owner, work.Exit{Code: 143, Signal: "SIGTERM"}}
		case SuspendCmd:
			ev = SuspendDone(c)
		case ResumeCmd:
			ev = ResumeDone{c.Owner}
		case ResizeCmd:
			ev = ResizeDone{Owner: c.Owner}
		default:
			continue
		}
		b.WriteString(s.step(t, ev))
	}
	return b.String()
}

func (s *story) pools(t *testing.T, d *datadriven.TestData) (pools []work.Pool) {
	for line := range strings.Lines(d.Input) {
		name, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		p := work.Pool{Name: name, Mode: work.Dynamic}
		for _, a := range args {
			switch a.Key {
			case "hosts":
				p.Hosts = strings.Split(a.Vals[0], ",")
			case "mode":
				p.Mode = work.PoolMode(a.Vals[0])
			case "ttl":
				p.TTL, err = time.ParseDuration(a.Vals[0])
			default:
				err = poolRule(&p, a)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		pools = append(pools, p)
	}
	return pools
}

// poolRule reads [weight=] [capacity=] [back-pressure=] [ask-at=] [borrow-from=POOL,…]
// [scale-out-every=] [reserve=GPUS] [min-runtime=] [preempt-per-hour=].
func poolRule(p *work.Pool, a datadriven.CmdArg) (err error) {
	if len(a.Vals) == 0 {
		return nil // for a name that is no word
	}
	switch a.Key {
	case "weight":
		p.Weight = new(float64)
		*p.Weight, err = strconv.ParseFloat(a.Vals[0], 64)
	case "capacity":
		p.Capacity, err = strconv.Atoi(a.Vals[0])
	case "back-pressure":
		p.BackPressure, err = strconv.ParseFloat(a.Vals[0], 64)
	case "ask-at":
		p.AskAt, err = strconv.Atoi(a.Vals[0])
	case "borrow-from":
		p.BorrowFrom = strings.Split(a.Vals[0], ",")
	case "scale-out-every":
		p.ScaleOutEvery, err = time.ParseDuration(a.Vals[0])
	case "lend":
		p.LendGPUs, err = strconv.ParseFloat(a.Vals[0], 64)
	case "reserve":
		p.ReserveGPUs, err = strconv.ParseFloat(a.Vals[0], 64)
	case "min-runtime":
		p.MinRuntime, err = time.ParseDuration(a.Vals[0])
	case "preempt-per-hour":
		p.PreemptPerHour, err = strconv.Atoi(a.Vals[0])
	case "on-idle": // CLASS:ACTION,…
		p.Elastic.OnIdle = map[work.Class]work.IdleAction{}
		for _, v := range a.Vals {
			class, action, _ := strings.Cut(v, ":")
			p.Elastic.OnIdle[work.Class(class)] = work.IdleAction(action)
		}
	case "after": // CLASS:DURATION,…
		p.Elastic.After = map[work.Class]time.Duration{}
		for _, v := range a.Vals {
			class, after, _ := strings.Cut(v, ":")
			if p.Elastic.After[work.Class(class)], err = time.ParseDuration(after); err != nil {
				return err
			}
		}
	case "cooldown":
		p.Elastic.Cooldown, err = time.ParseDuration(a.Vals[0])
	case "warn":
		p.Elastic.Warn, err = time.ParseDuration(a.Vals[0])
	case "per-hour":
		p.Elastic.PerHour, err = strconv.Atoi(a.Vals[0])
	case "per-task":
		p.Elastic.PerTask, err = strconv.Atoi(a.Vals[0])
	case "exempt":
		p.Elastic.Exempt = a.Vals
	case "guard": // BOUND:NUMBER,… or window:DURATION
		err = readGuard(&p.Elastic.Guard, a.Vals)
	default:
		err = fmt.Errorf("argument %q is not known", a.Key)
	}
	return err
}

// inventory changes what the driver sees and reports all of it.
//
//	hosts         lines: NAME gpus=NxMODEL[,…] cpu=CORES mem=SIZE
//	host-lost     NAME
//	host-back     NAME
//	gpu-broken    ID
//	gpu-repaired  ID
//	verdict       ID cordon|drain|none [WORD…], or of all GPUs of a host: NAME-*
//	fault         ID [task=] [ago=] [again]: what is reported once is reported for good
//	sharing       mps|slices
//	observe
func (s *story) inventory(t *testing.T, d *datadriven.TestData) Event {
	switch d.Cmd {
	case "hosts":
		for line := range strings.Lines(d.Input) {
			s.hosts = append(s.hosts, hostInfo(t, line))
		}
	case "host-lost":
		s.away[d.CmdArgs[0].Key] = true
	case "host-back":
		delete(s.away, d.CmdArgs[0].Key)
	case "gpu-broken":
		s.broken[d.CmdArgs[0].Key] = "XID 79"
	case "gpu-repaired":
		delete(s.broken, d.CmdArgs[0].Key)
	case "verdict":
		s.verdict(words(d))
	case "fault":
		s.faults = append(s.faults, s.fault(t, d))
	case "sharing":
		for i := range s.hosts {
			s.hosts[i].Sharing = map[string]string{"mps": gpu.SharingMPS}[d.CmdArgs[0].Key]
		}
	}
	inv := Inventory{Driver: "fake", Faults: s.faults}
	for _, h := range s.hosts {
		if s.away[h.Name] {
			continue
		}
		inv.Hosts = append(inv.Hosts, h)
		for _, g := range h.GPUs {
			if v, ails := s.wants[g.ID]; ails {
				inv.Verdicts = append(inv.Verdicts, v)
			} else if why := s.broken[g.ID]; why != "" {
				inv.Verdicts = append(inv.Verdicts, Verdict{ID: g.ID, Do: gpu.VerdictBroken, Why: why})
			}
		}
	}
	return inv
}

func hostInfo(t *testing.T, line string) gpu.HostInfo {
	name, args, err := datadriven.ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	h := gpu.HostInfo{Name: name, CPUMilli: 64000, MemMiB: 512 << 10}
	for _, a := range args {
		switch a.Key {
		case "cpu":
			h.CPUMilli = cores(t, a.Vals[0])
		case "mem":
			if h.MemMiB, err = work.ParseMiB(a.Vals[0]); err != nil {
				t.Fatal(err)
			}
		case "gpus":
			for x := range strings.SplitSeq(a.Vals[0], ",") {
				count, model, _ := strings.Cut(x, "x")
				n, err := strconv.Atoi(count)
				if err != nil {
					t.Fatal(err)
				}
				for range n {
					h.GPUs = append(h.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("%s-%d", name, len(h.GPUs)), Model: model})
				}
			}
		}
	}
	return h
}

func cores(t *testing.T, s string) int64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(f * 1000)
}

// spec reads TENANT [gpus=] [isolation=] [members=] [cpu=] [mem=] [pool=]
// [priority=] [ttl=] [lease=] [key=] [name=], and what habit knows.
func (s *story) spec(t *testing.T, d *datadriven.TestData) work.Spec {
	return readSpec(t, d, s.now)
}

// habit reads [class=] [max-runtime=] [estimate=] [checkpoint=] [deadline=FROM-NOW]
// [grace=] [after=TASK,…] [after-any=TASK,…] [hold] [array=FIRST-LAST] [on-idle=] [on-resize=]
// [signal=] [min=] [max=] [no-share] [no-preempt] [label=KEY:VALUE].
func habit(s *work.Spec, key, v string, now work.Time) (err error) {
	switch key {
	case "class":
		s.Class = work.Class(v)
	case "max-runtime":
		s.MaxRuntime, err = time.ParseDuration(v)
	case "estimate":
		s.Estimate, err = time.ParseDuration(v)
	case "checkpoint":
		s.Checkpoint, err = time.ParseDuration(v)
	case "grace":
		s.Grace, err = time.ParseDuration(v)
	case "deadline":
		var in time.Duration
		in, err = time.ParseDuration(v)
		s.Deadline = now.Add(in)
	case "after":
		s.After, err = taskIDs(v)
	case "after-any":
		s.AfterAny, err = taskIDs(v)
	case "hold":
		s.Hold = true
	case "on-idle":
		s.OnIdle = work.IdleAction(v)
	case "on-resize":
		s.OnResize = work.ResizeAction(v)
	case "signal":
		s.Signal = v
	case "min":
		s.MinMilli, err = strconv.Atoi(v)
	case "max":
		s.MaxMilli, err = strconv.Atoi(v)
	case "no-share":
		s.NoShare = true
	case "no-preempt":
		s.NoPreempt = true
	case "label":
		k, x, _ := strings.Cut(v, ":")
		s.Labels = map[string]string{k: x}
	case "array":
		var a work.Array
		a, err = work.ParseArray(v)
		s.Array = &a
	default:
		err = fmt.Errorf("argument %q is not known", key)
	}
	return err
}

func taskIDs(v string) (ids []work.TaskID, err error) {
	for x := range strings.SplitSeq(v, ",") {
		n, err := strconv.Atoi(x)
		if err != nil {
			return nil, err
		}
		ids = append(ids, work.TaskID(n))
	}
	return ids, nil
}

func readSpec(t *testing.T, d *datadriven.TestData, now work.Time) work.Spec {
	s := work.Spec{Tenant: d.CmdArgs[0].Key, Pool: "p", Priority: work.Normal, Command: []string{"train"}}
	var err error
	for _, a := range d.CmdArgs[1:] {
		v := strings.Join(a.Vals, ",")
		switch a.Key {
		case "gpus":
			r, parseErr := work.ParseGPUs(v)
			r.Isolation, r.Members, r.CPUMilli, r.MemMiB = s.Request.Isolation, s.Request.Members, s.Request.CPUMilli, s.Request.MemMiB
			s.Request, err = r, parseErr
		case "isolation":
			s.Request.Isolation = work.Isolation(v)
		case "members":
			s.Request.Members, err = strconv.Atoi(v)
		case "cpu":
			s.Request.CPUMilli = cores(t, v)
		case "mem":
			s.Request.MemMiB, err = work.ParseMiB(v)
		case "pool":
			s.Pool = v
		case "priority":
			s.Priority, err = work.ParsePriority(v)
		case "ttl":
			s.TTL, err = time.ParseDuration(v)
		case "lease":
			s.Command = nil
			s.LeaseTTL, err = time.ParseDuration(v)
		case "key":
			s.Key = v
		case "name":
			s.Name = v
		default:
			err = habit(&s, a.Key, v, now)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func number(t *testing.T, d *datadriven.TestData, i int) int {
	if i >= len(d.CmdArgs) {
		t.Fatalf("%s needs a task", d.Cmd)
	}
	n, err := strconv.Atoi(d.CmdArgs[i].Key)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// epoch is the one that is named, else the task's newest.
func (s *story) epoch(t *testing.T, d *datadriven.TestData, id work.TaskID) uint32 {
	epoch := uint64(0)
	if x := s.e.Task(id); x != nil {
		epoch = uint64(x.Epoch)
	}
	d.MaybeScanArgs(t, "epoch", &epoch)
	return uint32(epoch)
}

func duration(t *testing.T, d *datadriven.TestData, key string, to *time.Duration) {
	if arg, ok := d.Arg(key); ok {
		x, err := time.ParseDuration(arg.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		*to = x
	}
}

func decimal(t *testing.T, d *datadriven.TestData, key string, to *float64) {
	if arg, ok := d.Arg(key); ok {
		x, err := strconv.ParseFloat(arg.Vals[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		*to = x
	}
}

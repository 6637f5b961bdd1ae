package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/config"
)

// specFlags are the flags of submit and run: the fields of a task file.
type specFlags struct {
	file  string
	key   string
	retry time.Duration
	spec  apitype.TaskSpec

	after, afterAny []string
	labels          []string
	container       containerFlags
	more            envFlags
}

func (s *specFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&s.file, "file", "f", "", "task file (YAML or JSON) with the same fields; flags win over it, - reads standard input")
	f.StringVar(&s.spec.Name, "name", "", "name for people")
	f.StringVar(&s.spec.Tenant, "tenant", "", "who pays; with an admin token only (a tenant's token says it)")
	f.StringVar(&s.spec.Pool, "pool", "", "pool to run in (default: the first)")
	f.StringVar(&s.spec.Priority, "priority", "", "high, normal or low (default normal)")
	f.StringVar(&s.spec.Class, "class", "", "training, inference or interactive")
	f.StringVarP(&s.spec.GPUs, "gpus", "g", "", "GPUs of each member: 2, 0.3, 1/7, 3g.40gb, 20GiB or 0; 2..8 asks for 2 and can use up to 8; with a model: 2:H100-80GB (default 1)")
	f.StringVar(&s.spec.GPUMemory, "gpu-memory", "", "memory needed of each GPU or part, such as 20GiB")
	f.StringVar(&s.spec.Isolation, "isolation", "", "how a part may be cut: mig, shared or any (default: mig where the model has it)")
	f.IntVar(&s.spec.Members, "members", 0, "gang size: that many members, all or nothing (default 1)")
	f.Float64Var(&s.spec.CPUs, "cpus", 0, "CPU cores of each member")
	f.StringVar(&s.spec.Memory, "memory", "", "main memory of each member, such as 16GiB")
	f.StringVar(&s.spec.Dir, "dir", "", "working directory on the host (default: one of its own)")
	f.StringArrayVarP(&s.spec.Env, "env", "e", nil, "environment KEY=VALUE; KEY alone takes it from here")
	f.StringVar(&s.spec.Grace, "grace", "", "between SIGTERM and SIGKILL, such as 30s")
	f.StringVar(&s.spec.TTL, "ttl", "", "longest wait in line, such as 1h, then it expires; none for no end")
	f.StringVar(&s.spec.MaxRuntime, "max-runtime", "", "longest run, such as 4h, over all its attempts; then it is ended (default: no end)")
	f.StringVar(&s.spec.Estimate, "estimate", "", "your guess at how long it runs, such as 2h: a good one lets it be fitted in sooner")
	f.StringVar(&s.spec.Checkpoint, "checkpoint-every", "", "it saves its work this often, such as 15m")
	f.StringVar(&s.spec.Deadline, "deadline", "", "it should have ended by then: 8h from now, \"2026-12-03 08:00\" here, or RFC 3339")
	f.StringSliceVar(&s.after, "after", nil, "start once these tasks have succeeded, such as 12,13; the first of an array stands for all of it")
	f.StringSliceVar(&s.afterAny, "after-any", nil, "start once these tasks have ended, however")
	f.BoolVar(&s.spec.Hold, "hold", false, "wait until released (gpupool release)")
	f.StringVar(&s.spec.Array, "array", "", "one task for each index: 0-99, 0-98:2 for every second, 0-99%10 for ten at once; each has $GPUPOOL_ARRAY_INDEX")
	f.DurationVar(&s.retry, "retry", 0, "while the queue is full, try again as the server says, for this long")
	f.StringVar(&s.key, "idempotency-key", "", "submitting twice with one key gives one task")
	s.registerElastic(c)
	s.container.register(c)
	s.more.register(c)
	complete := func(name string, values ...string) {
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("priority", priorities()...)
	complete("class", "training", "inference", "interactive")
	complete("isolation", "mig", "shared", "any")
	complete("gpus", "1", "2", "4", "8", "1/7", "2/7", "0.5", "1g.10gb", "3g.40gb", "20GiB")
}

// read puts the task file and the flags together.
func (s *specFlags) read(c *cobra.Command, in io.Reader, command []string) (apitype.TaskSpec, error) {
	var spec apitype.TaskSpec
	if s.file != "" {
		var err error
		if spec, err = readTaskFile(s.file, in); err != nil {
			return spec, err
		}
	}
	if err := s.readAfter(); err != nil {
		return spec, err
	}
	for flag, take := range map[string]func(){
		"name": func() { spec.Name = s.spec.Name }, "tenant": func() { spec.Tenant = s.spec.Tenant },
		"pool": func() { spec.Pool = s.spec.Pool }, "priority": func() { spec.Priority = s.spec.Priority },
		"class": func() { spec.Class = s.spec.Class }, "gpus": func() { spec.GPUs = s.spec.GPUs },
		"gpu-memory": func() { spec.GPUMemory = s.spec.GPUMemory }, "isolation": func() { spec.Isolation = s.spec.Isolation },
		"members": func() { spec.Members = s.spec.Members }, "cpus": func() { spec.CPUs = s.spec.CPUs },
		"memory": func() { spec.Memory = s.spec.Memory }, "dir": func() { spec.Dir = s.spec.Dir },
		"env": func() { spec.Env = append(spec.Env, s.spec.Env...) }, "grace": func() { spec.Grace = s.spec.Grace },
		"ttl": func() { spec.TTL = s.spec.TTL }, "max-runtime": func() { spec.MaxRuntime = s.spec.MaxRuntime },
		"estimate": func() { spec.Estimate = s.spec.Estimate }, "checkpoint-every": func() { spec.Checkpoint = s.spec.Checkpoint },
		"deadline": func() { spec.Deadline = s.spec.Deadline }, "after": func() { spec.After = s.spec.After },
		"after-any": func() { spec.AfterAny = s.spec.AfterAny }, "hold": func() { spec.Hold = s.spec.Hold },
		"array": func() { spec.Array = s.spec.Array },
	} {
		if c.Flags().Changed(flag) {
			take()
		}
	}
	if err := s.readElastic(c, &spec); err != nil {
		return spec, err
	}
	if err := s.container.read(&spec); err != nil {
		return spec, err
	}
	if err := s.more.read(&spec); err != nil {
		return spec, err
	}
	if len(command) > 0 {
		spec.Command = command
	}
	if len(spec.Command) == 0 {
		return spec, usagef("nothing to run: give a command after --, for example: gpupool %s --gpus 1 -- python train.py", c.Name())
	}
	for i, kv := range spec.Env {
		if !strings.Contains(kv, "=") {
			v, ok := os.LookupEnv(kv)
			if !ok {
				return spec, usagef("environment %s is not set here: give %s=VALUE", kv, kv)
			}
			spec.Env[i] = kv + "=" + v
		}
	}
	var err error
	if spec.Deadline, err = deadline(spec.Deadline, time.Now()); err != nil {
		return spec, usage(err)
	}
	if _, err := spec.Work(); err != nil { // said here, before anything is sent
		return spec, usage(err)
	}
	if s.retry < 0 {
		return spec, usagef("--retry %s is negative: expected a duration such as 10m", s.retry)
	}
	return spec, nil
}

// readAfter reads the numbers of the tasks to wait for.
func (s *specFlags) readAfter() error {
	for _, x := range []struct {
		from []string
		to   *[]uint64
	}{{s.after, &s.spec.After}, {s.afterAny, &s.spec.AfterAny}} {
		*x.to = nil
		for _, text := range x.from {
			id, err := taskID(text)
			if err != nil {
				return err
			}
			*x.to = append(*x.to, id)
		}
	}
	return nil
}

// deadline puts a time as people write it into the words of the API.
func deadline(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if d, e := time.ParseDuration(text); e == nil {
		at, err = now.Add(d), nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, e := time.ParseInLocation(layout, text, time.Local); e == nil {
			at, err = t, nil
		}
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("deadline %q is not understood: expected a duration from now such as 8h, a time here such as %q, or RFC 3339", text, "2026-12-03 08:00")
	case !at.After(now):
		return "", fmt.Errorf("deadline %q is over: give a time to come", text)
	}
	return at.UTC().Format(time.RFC3339), nil
}

func readTaskFile(path string, in io.Reader) (apitype.TaskSpec, error) {
	var spec apitype.TaskSpec
	var b []byte
	var err error
	if path == "-" {
		b, err = io.ReadAll(io.LimitReader(in, 1<<20))
	} else {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return spec, usagef("the task file cannot be read: %w", err)
	}
	err = config.Unmarshal(path, b, &spec)
	return spec, usage(err)
}

func (a *App) submitCmd() *cobra.Command {
	var s specFlags
	c := &cobra.Command{
		Use: "submit [flags] -- COMMAND [ARG...]", Short: "Submit a task and return at once",
		Example: `  gpupool submit --gpus 1/7 -- python notebook.py
  gpupool submit --gpus 4 --name llama -- torchrun train.py
  gpupool submit --gpus 8 --members 2 -- ./gang.sh
  gpupool submit --gpus 2..8 --on-resize restart --resize-signal USR1 --grace 2m -- torchrun train.py
  gpupool submit --array 0-99%10 -- sh -c 'python eval.py --part $GPUPOOL_ARRAY_INDEX'
  gpupool submit --after 12 --deadline 8h -- python report.py
  gpupool submit -f job.yaml`,
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := s.read(c, a.In, args)
			if err != nil {
				return err
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			t, err := a.submit(c.Context(), c.Context(), api, spec, &s)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer, _ bool) {
				fmt.Fprintln(w, submitted(t))
				if t.State == "queued" {
					fmt.Fprintf(a.Err, "%s\nfollow it: gpupool explain %d, gpupool logs -f %d\n", t.Reason.Message, t.ID, t.ID)
				}
			})
		},
	}
	s.register(c)
	return c
}

// submitted says what became of a submission.
func submitted(t apitype.Task) string {
	if t.Array == 0 {
		return fmt.Sprintf("task %d %s", t.ID, t.State)
	}
	return fmt.Sprintf("tasks %d-%d queued (array %d of %d)", t.ID, t.ID+uint64(t.Size)-1, t.Array, t.Size)
}

func (a *App) runCmd() *cobra.Command {
	var s specFlags
	c := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARG...]", Short: "Submit a task, show its output, pass its exit code on",
		Long: `Submits a task, shows the output of its first member as it comes, and exits with the
task's exit code. Ctrl-C cancels the task; a second one leaves it at once.`,
		Example: `  gpupool run --gpus 3g.40gb -- python eval.py`,
		RunE: func(c *cobra.Command, args []string) error {
			spec, err := s.read(c, a.In, args)
			if err != nil {
				return err
			}
			if spec.Array != "" {
				return usagef("run follows one task, and array %s is many: use gpupool submit --array %s, then gpupool ps and gpupool logs", spec.Array, spec.Array)
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			return a.run(c.Context(), api, spec, &s)
		},
	}
	s.register(c)
	return c
}

// run is submit, logs -f and the exit code in one. ctx ends with the first Ctrl-C.
func (a *App) run(ctx context.Context, api *client.Client, spec apitype.TaskSpec, s *specFlags) error {
	// From here on a Ctrl-C is about the task: ctx ends and the task is cancelled.
	alive := context.WithoutCancel(ctx)
	t, err := a.submit(alive, ctx, api, spec, s)
	if err != nil {
		return err
	}
	if t.State == "queued" {
		fmt.Fprintf(a.Err, "task %d waits: %s\n", t.ID, t.Reason.Message)
	} else {
		fmt.Fprintf(a.Err, "task %d\n", t.ID)
	}
	cancelled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cancelled)
		fmt.Fprintf(a.Err, "cancelling task %d; Ctrl-C again leaves it\n", t.ID)
		signal.Reset(os.Interrupt, syscall.SIGTERM)
		if _, err := api.Cancel(alive, t.ID); err != nil {
			fmt.Fprintf(a.Err, "gpupool: %s\n", message(err))
		}
	})
	if r, err := api.Logs(alive, t.ID, client.LogQuery{Follow: true}); err == nil {
		_, _ = io.Copy(a.Out, r)
		r.Close()
	}
	for !t.Terminal() {
		if t, err = api.WaitTask(alive, t.ID, 30*time.Second); err != nil {
			return err
		}
	}
	if !stop() {
		<-cancelled
	}
	return a.exitWith(t)
}

// exitWith passes on how a task ended.
func (a *App) exitWith(t apitype.Task) error {
	switch {
	case t.State == "succeeded":
		return nil
	case t.State == "cancelled":
		fmt.Fprintf(a.Err, "task %d: %s\n", t.ID, t.Reason.Message)
		return &codeError{code: 130}
	case t.Exit != nil && t.Exit.Lost == "" && t.Exit.Code != 0:
		if t.Exit.Signal != "" {
			fmt.Fprintf(a.Err, "task %d: %s\n", t.ID, t.Reason.Message)
		}
		return &codeError{code: t.Exit.Code}
	}
	return fmt.Errorf("task %d %s: %s", t.ID, t.State, t.Reason.Message)
}

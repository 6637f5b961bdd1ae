package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

func (a *App) leaseCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "lease", Short: "Hold slices for a program that gpupool does not run",
		Long: `A lease gives slices to a program of your own. It must be renewed in time, or it is taken
back; its epoch says whether what you hold is still yours.`,
	}
	c.AddCommand(a.leaseAcquire(), a.leaseRun(), a.leaseList(), a.leaseRenew(), a.leaseRelease())
	return c
}

// leaseFlags are the flags of acquire and exec: those of submit that make sense for a
// program that gpupool does not run, and so can neither suspend, restart nor resize.
type leaseFlags struct {
	apitype.LeaseSpec
	labels []string
	key    string
	retry  time.Duration
}

// read checks what was given, before anything is sent.
func (s *leaseFlags) read() (err error) {
	if s.Labels, err = withLabels(nil, s.labels); err != nil {
		return err
	}
	if s.retry < 0 {
		return usagef("--retry %s is negative: expected a duration such as 10m", s.retry)
	}
	_, err = s.Work()
	return usage(err)
}

func (s *leaseFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.Name, "name", "", "name for people")
	f.StringVar(&s.Tenant, "tenant", "", "who pays; with an admin token only")
	f.StringVar(&s.Pool, "pool", "", "pool (default: the first)")
	f.StringVar(&s.Priority, "priority", "", "high, normal or low (default normal)")
	f.StringVarP(&s.GPUs, "gpus", "g", "", "as for submit: 2, 0.3, 1/7, 3g.40gb, 20GiB (default 1)")
	f.StringVar(&s.GPUMemory, "gpu-memory", "", "memory needed of each GPU or part")
	f.StringVar(&s.Isolation, "isolation", "", "mig, shared or any")
	f.Float64Var(&s.CPUs, "cpus", 0, "CPU cores to keep for it")
	f.StringVar(&s.Memory, "memory", "", "main memory to keep for it")
	f.StringVar(&s.TTL, "ttl", "", "longest wait in line")
	f.StringVar(&s.LeaseTTL, "lease-ttl", "", "taken back after so long without renewal (default 1m)")
	f.StringVar(&s.Class, "class", "", "training, inference or interactive")
	f.IntVar(&s.Members, "members", 0, "that many members, on as many hosts as it takes, all or nothing (default 1)")
	f.BoolVar(&s.NoShare, "no-share", false, "it is never put beside others on a GPU")
	registerLabels(c, &s.labels)
	f.DurationVar(&s.retry, "retry", 0, "while the queue is full, try again as the server says, for this long")
	f.StringVar(&s.key, "idempotency-key", "", "asking twice with one key gives one lease")
	for name, values := range map[string][]string{"class": {"training", "inference", "interactive"}, "priority": priorities(), "isolation": {"mig", "shared", "any"}} { // order: of no matter
		_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (a *App) leaseAcquire() *cobra.Command {
	var s leaseFlags
	var noWait bool
	c := &cobra.Command{
		Use: "acquire", Short: "Ask for slices and wait until they are held", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.read(); err != nil {
				return err
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			l, err := a.acquire(c.Context(), api, &s, !noWait)
			if err != nil {
				return err
			}
			return a.print(l, func(w io.Writer, _ bool) { leaseTable(w, []apitype.Lease{l}) })
		},
	}
	s.register(c)
	c.Flags().BoolVar(&noWait, "no-wait", false, "return at once, held or not")
	return c
}

// acquire asks for a lease and waits for it. When it is interrupted nothing is
// left waiting.
func (a *App) acquire(ctx context.Context, api *client.Client, s *leaseFlags, wait bool) (apitype.Lease, error) {
	l, err := again(ctx, a, s.key, s.retry, func(key string) (apitype.Lease, error) { return api.CreateLease(ctx, s.LeaseSpec, key) })
	for told := false; err == nil && wait && (l.State == "queued" || l.State == "starting"); {
		if l.State == "queued" && !told {
			fmt.Fprintf(a.Err, "lease %d waits: %s\n", l.ID, l.Reason.Message)
			told = true
		}
		id := l.ID
		if l, err = api.WaitLease(ctx, id, 30*time.Second); err != nil && ctx.Err() != nil {
			_, _ = api.Cancel(context.WithoutCancel(ctx), id)
		}
	}
	if err == nil && wait && l.State != "running" {
		return l, fmt.Errorf("lease %d %s: %s", l.ID, l.State, l.Reason.Message)
	}
	return l, err
}

func leaseTable(w io.Writer, ls []apitype.Lease) {
	var rows [][]string
	for _, l := range ls {
		expires := ""
		if l.Expires != nil {
			expires = "in " + span(time.Until(*l.Expires))
			if l.Recalled {
				expires += ", recalled"
			}
		}
		rows = append(rows, []string{fmt.Sprint(l.ID), fmt.Sprint(l.Epoch), l.Tenant, l.Name, l.Request, l.State, expires, l.Enforcement, strings.Join(l.Devices, ",")})
	}
	tabs(w, []string{"LEASE", "EPOCH", "TENANT", "NAME", "REQUEST", "STATE", "EXPIRES", "ENFORCED", "DEVICES"}, rows)
}

func (a *App) leaseRun() *cobra.Command {
	var s leaseFlags
	c := &cobra.Command{
		Use: "exec [flags] -- COMMAND [ARG...]", Short: "Run a command here with a lease, renewed while it runs", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.read(); err != nil {
				return err
			}
			api, err := a.connect()
			if err != nil {
				return err
			}
			l, err := a.acquire(c.Context(), api, &s, true)
			if err != nil {
				return err
			}
			return a.execWith(c.Context(), api, l, args)
		},
	}
	s.register(c)
	return c
}

// execWith runs a command as long as its lease holds, and gives the lease back.
func (a *App) execWith(ctx context.Context, api *client.Client, l apitype.Lease, args []string) error {
	alive := context.WithoutCancel(ctx)
	defer func() {
		if err := api.ReleaseLease(alive, l.ID, l.Epoch); err != nil {
			fmt.Fprintf(a.Err, "gpupool: lease %d: %s\n", l.ID, message(err))
		}
	}()
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	expires := *l.Expires
	go func() {
		tick := time.NewTicker(max(time.Until(expires)/3, 300*time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-held.Done():
				return
			case <-tick.C:
				renewed, err := api.RenewLease(alive, l.ID, l.Epoch)
				switch {
				case err == nil:
					expires = *renewed.Expires
				case time.Now().After(expires):
					lose(fmt.Errorf("lease %d is lost: %s", l.ID, message(err)))
				}
			}
		}
	}()
	cmd := exec.CommandContext(held, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(l.Devices, ","), "NVIDIA_VISIBLE_DEVICES="+strings.Join(l.Devices, ","),
		fmt.Sprintf("GPUPOOL_TASK=%d", l.ID), fmt.Sprintf("GPUPOOL_EPOCH=%d", l.Epoch))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if cause := context.Cause(held); cause != nil && ctx.Err() == nil {
		return cause
	}
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
		return &codeError{code: cmd.ProcessState.ExitCode()}
	}
	return err
}

func (a *App) leaseList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List leases that have not ended", Args: cobra.NoArgs,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			var ls []apitype.Lease
			for l, err := range api.Leases(ctx) {
				if err != nil {
					return err
				}
				ls = append(ls, l)
			}
			return a.print(listOf(ls), func(w io.Writer, _ bool) { leaseTable(w, ls) })
		}),
	}
}

func (a *App) leaseRenew() *cobra.Command {
	var epoch uint32
	c := &cobra.Command{
		Use: "renew LEASE --epoch N", Short: "Keep a lease", Args: cobra.ExactArgs(1),
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			l, err := api.RenewLease(ctx, id, epoch)
			if err != nil {
				return err
			}
			return a.print(l, func(w io.Writer, _ bool) { leaseTable(w, []apitype.Lease{l}) })
		}),
	}
	c.Flags().Uint32Var(&epoch, "epoch", 1, "epoch that you hold")
	return c
}

func (a *App) leaseRelease() *cobra.Command {
	var epoch uint32
	c := &cobra.Command{
		Use: "release LEASE --epoch N", Short: "Give a lease back", Args: cobra.ExactArgs(1),
		RunE: a.onTask(func(ctx context.Context, api *client.Client, id uint64) error {
			if err := api.ReleaseLease(ctx, id, epoch); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "lease %d given back\n", id)
			return nil
		}),
	}
	c.Flags().Uint32Var(&epoch, "epoch", 1, "epoch that you hold")
	return c
}

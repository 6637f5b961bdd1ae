// Package cli is the command line: cobra commands that are clients of the HTTP
// API, and the simulator's commands, which need no server.
//
// Every command that shows something takes -o table, wide, json or yaml; colours
// and progress bars appear on a terminal only. A command costs one or a few calls;
// lists are fetched page by page.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/doctor"
	"github.com/gpupool/gpupool/internal/work"
)

// Exit codes. The command run passes on the exit code of its task instead.
const (
	exitFailure = 1
	exitUsage   = 2
)

// App is what the commands need from outside.
type App struct {
	Version string
	Out     io.Writer
	Err     io.Writer
	In      io.Reader

	// Serve runs the server until ctx ends. It is given by main, which alone knows
	// concrete drivers and stores.
	Serve func(ctx context.Context, o ServeOptions) error

	// Doctor examines this machine; given by main for the same reason.
	Doctor func(ctx context.Context, o DoctorOptions) (doctor.Report, error)

	// Journal does what a command of the group journal asks for; given by main, too.
	Journal func(ctx context.Context, o JournalOptions) (JournalReport, error)

	flags globalFlags
}

// ServeOptions is what serve was asked for, flags over file over defaults.
type ServeOptions struct {
	Config  config.Config
	Version string
	Verbose bool
	Ready   func(url, data, hardware string) // called once the API answers
	Err     io.Writer
}

type globalFlags struct {
	output    string
	server    string
	token     string
	tokenFile string
	data      string
	ca        string
	cert      string
	key       string
}

// codeError carries an exit code.
type codeError struct {
	code int
	err  error // nil: nothing is left to say
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// usagef is a fault in how a command was called.
func usagef(format string, args ...any) error {
	return &codeError{exitUsage, fmt.Errorf(format, args...)}
}

// usage marks an error as one of usage.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &codeError{exitUsage, err}
}

// Main runs a command line and returns the exit code.
func (a *App) Main(ctx context.Context, args []string) int {
	root := a.Root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	code := exitFailure
	var coded *codeError
	var cfg *config.Error
	switch {
	case errors.As(err, &coded):
		code = coded.code
		if coded.err == nil {
			return code
		}
	case errors.As(err, &cfg):
		code = exitUsage
	case strings.HasPrefix(err.Error(), "unknown command"):
		code = exitUsage
		err = fmt.Errorf("%w: see gpupool --help", err)
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.Err, "gpupool: interrupted")
		return 130
	}
	fmt.Fprintf(a.Err, "gpupool: %s\n", message(err))
	return code
}

// message is an error for a person: of the API only its sentence.
func message(err error) string {
	if api, ok := errors.AsType[*client.Error](err); ok {
		return api.Error()
	}
	return err.Error()
}

// Root builds the tree of commands.
func (a *App) Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpupool",
		Short: "Turn GPUs into a shared pool",
		Long: `gpupool turns the GPUs of a machine or a cluster into one pool that many tenants share.

Try it without a GPU:
  gpupool serve                                  eight fake H100s
  gpupool run --gpus 1/7 -- nvidia-smi -L        in another terminal
  gpupool simulate --trace testdata/traces/itp   what pooling does to a real trace`,
		SilenceErrors: true, SilenceUsage: true,
		Version: a.Version,
	}
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetIn(a.In)
	root.SetVersionTemplate("gpupool {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, c.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.flags.server, "server", "", "address of the server (default: $GPUPOOL_SERVER, else the one that serves from the data folder)")
	f.StringVar(&a.flags.token, "token", "", "token to use; better in $GPUPOOL_TOKEN, where ps does not show it")
	f.StringVar(&a.flags.tokenFile, "token-file", "", "file that holds the token (default: the admin token in the data folder)")
	f.StringVar(&a.flags.data, "data", "", "data folder of the server on this machine (default: $GPUPOOL_DATA, else ~/.local/share/gpupool)")
	f.StringVar(&a.flags.ca, "ca", "", "file with certificates (PEM) that sign the server's (default: $GPUPOOL_CA, else the system's)")
	f.StringVar(&a.flags.cert, "cert", "", "client certificate (PEM) to show in place of a token (default: $GPUPOOL_CERT)")
	f.StringVar(&a.flags.key, "key", "", "its key (default: $GPUPOOL_KEY)")
	f.StringVarP(&a.flags.output, "output", "o", "table", "output: table, wide, json or yaml")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.checkOutput() }

	tasks := []*cobra.Command{a.submitCmd(), a.runCmd(), a.psCmd(), a.getCmd(), a.logsCmd(), a.cancelCmd(), a.explainCmd(), a.leaseCmd(), a.eventsCmd()}
	root.AddGroup(&cobra.Group{ID: "work", Title: "Work:"}, &cobra.Group{ID: "pool", Title: "The pool:"},
		&cobra.Group{ID: "plan", Title: "Experiments:"}, &cobra.Group{ID: "admin", Title: "Running gpupool:"})
	for _, g := range []struct {
		id   string
		cmds []*cobra.Command
	}{
		{"work", append(tasks, a.actionCmds()...)},
		{"pool", []*cobra.Command{a.topCmd(), a.gpusCmd(), a.hostsCmd(), a.poolsCmd(), a.rolloutCmd(), a.tenantsCmd(), a.tokensCmd(), a.secretsCmd(), a.reportCmd()}},
		{"plan", []*cobra.Command{a.assessCmd(), a.simulateCmd(), a.planCmd(), a.benchCmd(), a.stormCmd(), a.loadtestCmd()}},
		{"admin", []*cobra.Command{a.serveCmd(), a.serviceCmd(), a.doctorCmd(), a.journalCmd(), a.configCmd(), a.auditCmd(), a.versionCmd()}},
	} {
		for _, c := range g.cmds {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	usageArgs(root)
	return root
}

// usageArgs makes wrong arguments errors of usage that say where to look.
func usageArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usagef("%w: see %s --help", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

func (a *App) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.print(map[string]string{"version": a.Version}, func(w io.Writer, _ bool) {
				fmt.Fprintf(w, "gpupool %s\n", a.Version)
			})
		},
	}
}

// taskID reads a task's number.
func taskID(s string) (uint64, error) {
	var id uint64
	if _, err := fmt.Sscanf(s, "%d", &id); err != nil || fmt.Sprint(id) != s || id == 0 {
		return 0, usagef("expected a task's number, such as 17, got %q: gpupool ps lists them", s)
	}
	return id, nil
}

// onTerminal reports whether w is a terminal.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// priorities, for completion.
func priorities() (out []string) {
	for p := range work.Priority(work.Priorities) {
		out = append(out, p.String())
	}
	return out
}

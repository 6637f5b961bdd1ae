package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/deploy/prometheus"
	"github.com/gpupool/gpupool/internal/config"
)

// serveFlags are the settings of a server that the command line may give.
type serveFlags struct {
	file, listen, journal, fake string
	adopt, exclude              []string
	verbose, insecure           bool
}

func (s *serveFlags) add(c *cobra.Command, verbose string) {
	f := c.Flags()
	f.StringVar(&s.file, "config", "", "configuration file (see gpupool config example)")
	f.StringVar(&s.listen, "listen", "", "address of the API (default 127.0.0.1:8470); port 0 takes a free one")
	f.StringVar(&s.journal, "journal", "", "Redis that several servers share, such as redis://127.0.0.1:6379 (default: the file journal.db in the data folder)")
	f.StringVar(&s.fake, "fake", "", "fake GPUs, such as 8xH100-80GB or 2x8xA100-80GB")
	f.StringSliceVar(&s.adopt, "adopt", nil, "NVIDIA GPUs, by index or UUID, to take over with what idles on them")
	f.StringSliceVar(&s.exclude, "exclude", nil, "NVIDIA GPUs, by index or UUID, to leave alone")
	f.BoolVar(&s.insecure, "insecure", false, "serve other machines without TLS, as behind a proxy that ends it")
	f.BoolVarP(&s.verbose, "verbose", "v", false, verbose)
}

// options are the flags over the file over the defaults.
func (s *serveFlags) options(c *cobra.Command, a *App) (ServeOptions, error) {
	cfg := config.Default()
	var err error
	if s.file != "" {
		if cfg, err = config.Load(s.file); err != nil {
			return ServeOptions{}, err
		}
	}
	if c.Flags().Changed("listen") {
		cfg.Server.Listen = s.listen
	}
	if c.Flags().Changed("fake") {
		cfg.Server.Fake = s.fake
	}
	cfg.NVIDIA.Adopt, cfg.NVIDIA.Exclude = append(cfg.NVIDIA.Adopt, s.adopt...), append(cfg.NVIDIA.Exclude, s.exclude...)
	if s.insecure {
		cfg.Server.Insecure = true
	}
	if c.Flags().Changed("journal") {
		cfg.Journal.URL = s.journal
		if err := cfg.Check(); err != nil {
			return ServeOptions{}, usage(err)
		}
	}
	if cfg.Server.Data, err = DataDir(cmp.Or(a.flags.data, cfg.Server.Data)); err != nil {
		return ServeOptions{}, err
	}
	return ServeOptions{Config: cfg, Version: a.Version, Verbose: s.verbose, Err: a.Err}, nil
}

func (a *App) serveCmd() *cobra.Command {
	var s serveFlags
	c := &cobra.Command{
		Use: "serve", Short: "Run the pool", Args: cobra.NoArgs,
		Long: `Runs the pool on this machine: the API, the queue, and the tasks. Tasks go on running when
the server stops, and are found again when it starts.`,
		Example: `  gpupool serve
  gpupool serve --fake 8xH100-80GB
  gpupool serve --config gpupool.yaml`,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := s.options(c, a)
			if err != nil {
				return err
			}
			for _, idle := range o.Config.Idle() {
				fmt.Fprintf(a.Err, "gpupool: %s is set and has no effect in this version\n", idle)
			}
			o.Ready = func(url, data, hardware string) {
				fmt.Fprintf(a.Out, "gpupool %s serves on %s\n  data      %s\n  hardware  %s\n  try       gpupool run --gpus 1/7 -- echo hello\n", a.Version, url, data, hardware)
			}
			return a.Serve(c.Context(), o)
		},
	}
	s.add(c, "log every call")
	return c
}

func (a *App) configCmd() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check a configuration file, or show one"}
	c.AddCommand(
		&cobra.Command{
			Use: "check FILE", Short: "Check a configuration file", Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error {
				cfg, err := config.Load(args[0])
				if err != nil {
					return err
				}
				for _, s := range cfg.Idle() {
					fmt.Fprintf(a.Err, "note: %s is set and has no effect in this version\n", s)
				}
				return a.print(cfg.WorkPools(), func(w io.Writer, _ bool) {
					fmt.Fprintf(w, "%s is valid: %d pool(s)\n", args[0], len(cfg.WorkPools()))
				})
			},
		},
		&cobra.Command{
			Use: "example", Short: "Print every setting with its default", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := io.WriteString(a.Out, config.Example())
				return err
			},
		},
		&cobra.Command{
			Use: "rules [FILE]", Short: "Print recording rules and alerts for Prometheus, with the times of a configuration file", Args: cobra.MaximumNArgs(1),
			Example: "  gpupool config rules gpupool.yaml >/etc/prometheus/gpupool.rules.yml",
			RunE: func(_ *cobra.Command, args []string) error {
				cfg := config.Default()
				if len(args) > 0 {
					var err error
					if cfg, err = config.Load(args[0]); err != nil {
						return err
					}
				}
				_, err := io.WriteString(a.Out, prometheus.Rules(time.Duration(cfg.Alerts.For)))
				return err
			},
		},
		&cobra.Command{
			Use: "schema", Short: "Print the JSON Schema, for editors", Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				b, err := config.Schema()
				if err == nil {
					_, err = a.Out.Write(append(b, '\n'))
				}
				return err
			},
		})
	return c
}

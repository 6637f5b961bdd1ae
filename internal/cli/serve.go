package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/config"
)

func (a *App) serveCmd() *cobra.Command {
	var file, listen, fake string
	var verbose bool
	c := &cobra.Command{
		Use: "serve", Short: "Run the pool", Args: cobra.NoArgs,
		Long: `Runs the pool on this machine: the API, the queue, and the tasks. Tasks go on running when
the server stops, and are found again when it starts.`,
		Example: `  gpupool serve --fake 8xH100-80GB
  gpupool serve --config gpupool.yaml`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg := config.Default()
			if file != "" {
				var err error
				if cfg, err = config.Load(file); err != nil {
					return err
				}
			}
			if c.Flags().Changed("listen") {
				cfg.Server.Listen = listen
			}
			if c.Flags().Changed("fake") {
				cfg.Server.Fake = fake
			}
			given := a.flags.data
			if given == "" {
				given = cfg.Server.Data
			}
			var err error
			if cfg.Server.Data, err = DataDir(given); err != nil {
				return err
			}
			for _, s := range cfg.Idle() {
				fmt.Fprintf(a.Err, "gpupool: %s is set and has no effect in this version\n", s)
			}
			return a.Serve(c.Context(), ServeOptions{Config: cfg, Version: a.Version, Verbose: verbose, Err: a.Err,
				Ready: func(url, data, hardware string) {
					fmt.Fprintf(a.Out, "gpupool %s serves on %s\n  data      %s\n  hardware  %s\n  try       gpupool run --gpus 1/7 -- echo hello\n", a.Version, url, data, hardware)
				}})
		},
	}
	f := c.Flags()
	f.StringVar(&file, "config", "", "configuration file (see gpupool config example)")
	f.StringVar(&listen, "listen", "", "address of the API (default 127.0.0.1:8470); port 0 takes a free one")
	f.StringVar(&fake, "fake", "", "fake GPUs, such as 8xH100-80GB or 2x8xA100-80GB")
	f.BoolVarP(&verbose, "verbose", "v", false, "log every call")
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

package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/doctor"
)

// DoctorOptions say which pool doctor looks at: the settings that serve would take.
type DoctorOptions struct {
	ServeOptions
	Server string // address of a server to ask; empty: the one that uses the data folder
	TLS    client.TLS
}

// doctorColours by level.
var doctorColours = map[doctor.Level]string{doctor.OK: "32", doctor.Skip: "2", doctor.Warn: "33", doctor.Fail: "31"}

func (a *App) doctorCmd() *cobra.Command {
	var s serveFlags
	var asJSON bool
	c := &cobra.Command{
		Use: "doctor", Short: "Say what keeps this machine from being a pool, and what mends it", Args: cobra.NoArgs,
		Long: `Looks at the driver, the GPUs, MIG and who blocks it, MPS, containers, control groups, rights,
the clock, the disk and the pool itself. Each line is ok, warn or fail; under what is not ok
stand the commands that mend it. Nothing is changed: only a small file is written into the data
folder and removed again. It sees most as root.

Exit codes: 0 when nothing fails (there may be warnings), 1 when something does, 2 for wrong usage.`,
		Example: `  sudo gpupool doctor
  gpupool doctor --config /etc/gpupool/config.yaml --verbose
  gpupool doctor --json | jq '.results[] | select(.level == "fail")'`,
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON {
				a.flags.output = "json"
			}
			o, err := s.options(c, a)
			if err != nil {
				return err
			}
			r, err := a.Doctor(c.Context(), DoctorOptions{ServeOptions: o, Server: a.flags.server, TLS: a.findTLS(ServerInfo{})})
			if err != nil {
				return err
			}
			colour := a.colours()
			if err := a.print(r, func(w io.Writer, wide bool) {
				r.Write(w, s.verbose || wide, func(l doctor.Level, text string) string { return colour.paint(doctorColours[l], text) })
			}); err != nil {
				return err
			}
			if code := r.Exit(); code != 0 {
				return &codeError{code: code}
			}
			return nil
		},
	}
	s.add(c, "show what was skipped, and why, and the details of each check")
	c.Flags().BoolVar(&asJSON, "json", false, "the same as -o json")
	return c
}

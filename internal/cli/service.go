package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/systemd"
)

// Where the service keeps things unless told otherwise.
const (
	serviceData   = "/var/lib/gpupool"
	serviceConfig = "/etc/gpupool/config.yaml"
)

// serviceFlags describe the unit.
type serviceFlags struct {
	user, config string
	dryRun       bool
}

func (a *App) serviceCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "service", Short: "Run the pool as a service of systemd",
		Long: `Installs gpupool as a service: it starts with the machine, is restarted when it fails or hangs,
and is stopped and updated while tasks go on.`,
	}
	c.AddCommand(a.serviceInstallCmd(), a.serviceUninstallCmd(), a.serviceStatusCmd())
	return c
}

func (s *serviceFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.user, "user", "", "who runs it (default root, who alone can cut GPUs and run tasks as their tenants' users)")
	f.StringVar(&s.config, "config", serviceConfig, "configuration file; made with the defaults if there is none")
}

// unit is the service of this very program; the data folder is never that of the user who installs it.
func (s *serviceFlags) unit(a *App) (systemd.Unit, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return systemd.Unit{}, fmt.Errorf("this program's own file cannot be found: %w", err)
	}
	u := systemd.Unit{Binary: exe, User: s.user, Data: serviceData, Config: s.config}
	if a.flags.data != "" {
		u.Data = a.flags.data
	}
	return u, usage(u.Check())
}

func (a *App) installer(dryRun bool) systemd.Installer {
	return systemd.Installer{Out: a.Out, DryRun: dryRun, Systemctl: systemd.Systemctl}
}

func (a *App) serviceInstallCmd() *cobra.Command {
	var s serviceFlags
	c := &cobra.Command{
		Use: "install", Short: "Install and start the service, or update it", Args: cobra.NoArgs,
		Long: `Writes ` + systemd.UnitFile + `, ` + serviceConfig + ` (if there is none) and the data
folder (` + serviceData + `, or --data), then enables and starts the service. It may be repeated: what is
right already is kept, and a running service is restarted only if its unit changed. Tasks go on.
The unit runs this very program where it lies, so put it into /usr/local/bin first.`,
		Example: `  sudo install -m 755 gpupool /usr/local/bin/ && sudo gpupool service install
  gpupool service install --dry-run
  sudo gpupool service install --user ada --data /srv/gpupool`,
		RunE: func(c *cobra.Command, _ []string) error {
			u, err := s.unit(a)
			if err != nil {
				return err
			}
			in := a.installer(s.dryRun)
			if s.dryRun || !in.Booted() {
				text, err := u.Text()
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "%s\n", text)
			}
			if strings.HasPrefix(u.Binary, "/tmp/") || strings.HasPrefix(u.Binary, "/home/") || strings.HasPrefix(u.Binary, "/root/") {
				fmt.Fprintf(a.Err, "gpupool: the unit runs %s, which others may change or remove: sudo install -m 755 %s /usr/local/bin/\n", u.Binary, u.Binary)
			}
			if u.User != "" && u.User != "root" {
				fmt.Fprintf(a.Err, "gpupool: as %s it cannot cut GPUs (MIG), nor run tasks as other users\n", u.User)
			}
			err = in.Install(c.Context(), u, config.Example())
			switch {
			case errors.Is(err, systemd.ErrAbsent):
				return fmt.Errorf("%w. Start it by what does (the unit above says how): %s serve --config %s --data %s", err, u.Binary, u.Config, u.Data)
			case err == nil && !s.dryRun:
				fmt.Fprintf(a.Out, "the pool is at work. For its administrator: export GPUPOOL_DATA=%s; gpupool gpus\n", u.Data)
			}
			return err
		},
	}
	s.add(c)
	c.Flags().BoolVar(&s.dryRun, "dry-run", false, "only say what would be done, and print the unit")
	return c
}

func (a *App) serviceUninstallCmd() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use: "uninstall", Short: "Stop the service and remove its unit", Args: cobra.NoArgs,
		Long: `Stops the service, and removes its unit. Tasks that run go on; end them first where they should
not (gpupool ps, gpupool cancel). Settings, journal, logs and tokens stay.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.installer(dryRun).Uninstall(c.Context()); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "settings, journal and tokens stay. To forget them too: sudo rm -r %s %s\n", filepath.Dir(serviceConfig), serviceData)
			return nil
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return c
}

func (a *App) serviceStatusCmd() *cobra.Command {
	var s serviceFlags
	c := &cobra.Command{
		Use: "status", Short: "Say whether the service is installed, enabled and at work", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			u, err := s.unit(a)
			if err != nil {
				return err
			}
			st, err := a.installer(false).Status(c.Context(), u)
			if err != nil {
				return err
			}
			return a.print(st, func(w io.Writer, _ bool) {
				unit := "not installed"
				switch {
				case st.Current:
					unit = systemd.UnitFile
				case st.Installed:
					unit = systemd.UnitFile + ", not the one that gpupool service install would write with these flags"
				}
				by := "systemd does not run this machine"
				if st.Systemd {
					by = st.Active + ", " + st.Enabled
				}
				fmt.Fprintf(w, "unit     %s\nservice  %s\n", unit, by)
				if st.Says != "" {
					fmt.Fprintf(w, "says     %s\n", st.Says)
				}
			})
		},
	}
	s.add(c)
	return c
}

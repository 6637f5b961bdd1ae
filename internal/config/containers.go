package config

import (
	"fmt"
	"path"
	"slices"

	"github.com/gpupool/gpupool/internal/work"
)

// Process is about tasks that run as processes.
type Process struct {
	Users       map[string]string `yaml:"users,omitempty" example:"{vision: \"2001:2001\", speech: speech}" doc:"Whom the tasks of each tenant run as, in containers too: a user of this system, or UID:GID in numbers. Takes a server that is root. With it default_user is needed too."`
	DefaultUser string            `yaml:"default_user" default:"" doc:"Whom the tasks of all other tenants run as. Empty: the server's own user, which as root reads everything on the machine; in containers whom the image says."`
	Work        string            `yaml:"work_dir" default:"/var/lib/gpupool/work" doc:"Where tasks that run as another user get their working directories; those users must be able to pass through it."`
}

// Podman is about tasks that run in containers.
type Podman struct {
	Command  []string `yaml:"command,omitempty" example:"[podman]" doc:"Podman, with what comes before its subcommand. Empty: podman."`
	Image    string   `yaml:"image" default:"" doc:"Image of tasks that name none. Empty: those run as processes, or as server.runner says."`
	Images   []string `yaml:"images,omitempty" example:"[\"nvcr.io/nvidia/*\", \"registry.example.com/*\"]" doc:"Images that tasks may name, with * for anything. Empty: any."`
	Pull     string   `yaml:"pull" default:"missing" enum:"missing,always,newer,never" doc:"When an image is fetched: missing, if it is not on this machine."`
	Volumes  []string `yaml:"volumes,omitempty" example:"[/data, /scratch]" doc:"Folders of the host that volumes may be in, after links are followed. Empty: no volumes, as the host's files are not the tenant's."`
	Network  string   `yaml:"network" default:"none" enum:"none,bridge,host" doc:"Network of tasks that name none: nothing is reached that was not asked for."`
	Networks []string `yaml:"networks,omitempty" example:"[none, bridge]" doc:"Networks that tasks may name. Empty: none and bridge; host lets a task reach whatever listens on this machine alone."`
	Pids     int      `yaml:"pids" default:"4096" doc:"Processes and threads of a container at most."`
	Shm      Size     `yaml:"shm" default:"1GiB" doc:"Size of /dev/shm, through which loaders of data pass it on; it counts as the task's memory."`
}

func (c Config) checkContainers() error {
	for _, x := range []struct {
		name, got string
		want      []string
	}{{"server.runner", c.Server.Runner, []string{"auto", "process", "podman"}}, {"podman.pull", c.Podman.Pull, []string{"missing", "always", "newer", "never"}}, {"podman.network", c.Podman.Network, work.Networks()}} {
		if !slices.Contains(x.want, x.got) {
			return fmt.Errorf("%s: expected one of %v, got %q", x.name, x.want, x.got)
		}
	}
	for i, n := range c.Podman.Networks {
		if !slices.Contains(work.Networks(), n) {
			return fmt.Errorf("podman.networks[%d]: expected one of %v, got %q", i, work.Networks(), n)
		}
	}
	for i, dir := range c.Podman.Volumes {
		if !path.IsAbs(dir) {
			return fmt.Errorf("podman.volumes[%d]: expected an absolute path, got %q", i, dir)
		}
	}
	if len(c.Process.Users) > 0 && c.Process.DefaultUser == "" {
		return fmt.Errorf("process.default_user: expected whom tasks of tenants run as that are not in process.users, such as nobody; it is empty, and so the image of such a task could choose the UID of one who is")
	}
	if !path.IsAbs(c.Process.Work) {
		return fmt.Errorf("process.work_dir: expected an absolute path, got %q", c.Process.Work)
	}
	for i, p := range c.Podman.Images {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("podman.images[%d]: %q is not a pattern: expected one such as nvcr.io/nvidia/*", i, p)
		}
	}
	return nil
}

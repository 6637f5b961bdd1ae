// Package podman runs members of tasks in containers, by podman's command line: no daemon
// is needed, and none can lose a container. Above each stands the shim of package process,
// which stands above processes too; so what is kept of a member, how it is ended, and what
// survives which death is the same for both (docs/adr/012-containers.md).
//
// A container sees the slices of its member and no other device, by a device spec (CDI)
// that is made for it and removed with it. It costs what a process costs, and podman's own
// processes (podman run and conmon).
package podman

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/cdi"
	"github.com/gpupool/gpupool/internal/runner/process"
	"github.com/gpupool/gpupool/internal/work"
)

// Options of a Runner. Zero values mean the defaults.
type Options struct {
	Command  []string // podman, with what comes before its subcommand; default podman
	Image    string   // of tasks that name none; "" = those run as processes
	Only     bool     // tasks without an image are refused instead
	Images   []string // patterns of images that tasks may name, with *; empty: any
	Pull     string   // always, missing, never or newer; default missing
	Volumes  []string // folders of the host that volumes may be in; empty: none
	Network  string   // of tasks that name none; default none
	Networks []string // that tasks may name; default none and bridge
	Pids     int      // processes and threads of a container; default 4096
	ShmMiB   int64    // of /dev/shm; default 1024
	Devices  string   // folder of device specs; default /var/run/cdi
	Toolkit  string   // device spec of NVIDIA's container toolkit; default /etc/cdi/nvidia.yaml
	Root     string   // where /dev is that has the device nodes; "" = /. For tests

	User func(tenant string) string // UID:GID that a tenant's programs run as; "" or nil: as the image says
}

// kind of the devices in the specs that are made here.
const kind = "gpupool.dev/slice"

// Runner implements runner.Runner. Members without an image are processes.
type Runner struct {
	*process.Runner
	o        Options
	instance string
}

// New makes a runner that runs tasks with an image in containers, and the others as the
// runner of processes does. Root is that one's folder.
func New(processes *process.Runner, root string, o Options) *Runner {
	if len(o.Command) == 0 {
		o.Command = []string{"podman"}
	}
	if o.Pull == "" {
		o.Pull = "missing"
	}
	if o.Network == "" {
		o.Network = "none"
	}
	if len(o.Networks) == 0 {
		o.Networks = []string{"none", "bridge"}
	}
	if o.Pids == 0 {
		o.Pids = 4096
	}
	if o.ShmMiB == 0 {
		o.ShmMiB = 1024
	}
	if o.Devices == "" {
		o.Devices = "/var/run/cdi"
	}
	if o.Toolkit == "" {
		o.Toolkit = "/etc/cdi/nvidia.yaml"
	}
	return &Runner{Runner: processes, o: o, instance: process.Instance(root)}
}

// Start implements runner.Runner. A task that asks for what it may not have ends at once,
// with code 126, and its log says why: trying again would not help.
func (r *Runner) Start(ctx context.Context, s runner.Spec) error {
	if s.Image == "" {
		s.Image = r.o.Image
	}
	err := r.Refuses(s.Container)
	if err == nil && s.Image == "" {
		return r.Runner.Start(ctx, s)
	}
	var c process.Container
	if err == nil {
		c, err = r.container(s)
	}
	if err != nil {
		c = process.Container{Refused: err.Error()}
	}
	return r.StartIn(ctx, s, c)
}

// Refuses says why a task that asks for this may not run here, so that it can be said when
// it is submitted. Start looks again.
func (r *Runner) Refuses(c work.Container) error {
	image := cmp.Or(c.Image, r.o.Image)
	switch {
	case image == "" && r.o.Only:
		return fmt.Errorf("tasks run in containers here: give an --image")
	case image == "" && (len(c.Volumes) > 0 || c.Network != ""):
		return fmt.Errorf("volumes and a network are of containers, and this task runs as a process: give an --image, or leave them out")
	case image != "" && !matches(r.o.Images, image):
		return fmt.Errorf("image %s may not be run here: expected one like %s", image, strings.Join(r.o.Images, ", "))
	}
	if _, err := r.network(c); err != nil {
		return err
	}
	_, err := r.volumes(c)
	return err
}

// container says how a member is run.
func (r *Runner) container(s runner.Spec) (process.Container, error) {
	// Two servers on a machine do not meet, nor one and what an earlier one left.
	id := fmt.Sprintf("%d-%d-%d-%s", s.ID.Task, s.ID.Epoch, s.ID.Member, r.instance)
	name := "gpupool-" + id
	c := process.Container{PIDFile: r.PIDFile(s.ID), Home: "/tmp",
		Remove: r.podman("rm", "--force", "--ignore", "--volumes", "--time", "0", name),
		Killed: r.podman("inspect", "--format", "{{.State.OOMKilled}}", name),
		CDI:    filepath.Join(r.o.Devices, name+".json")}
	network, err := r.network(s.Container)
	if err != nil {
		return c, err
	}
	c.Devices, err = r.devices(id, s)
	if err != nil {
		return c, err
	}
	args := []string{"run", "--name", name, "--replace", "--pidfile", c.PIDFile, "--init", "--log-driver", "none", "--sig-proxy=false", "--http-proxy=false",
		"--pull", r.o.Pull, "--network", network, "--device", kind + "=" + id,
		// What an image asks for by itself: a health check would run outside what is suspended and
		// ended with the task, and its volumes would be disk of the host without a bound.
		"--no-healthcheck", "--image-volume", "tmpfs",
		"--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp:rw,nosuid,nodev,mode=1777",
		"--cap-drop", "all", "--security-opt", "no-new-privileges",
		"--pids-limit", strconv.Itoa(r.o.Pids), "--shm-size", strconv.FormatInt(r.o.ShmMiB, 10) + "m",
		"--label", "gpupool.task=" + strconv.FormatUint(s.ID.Task, 10), "--label", "gpupool.epoch=" + strconv.FormatUint(uint64(s.ID.Epoch), 10),
		"--label", "gpupool.member=" + strconv.Itoa(s.ID.Member), "--label", "gpupool.tenant=" + s.Tenant}
	args = append(args, limits(s)...)
	if r.o.User != nil {
		if u := r.o.User(s.Tenant); u != "" {
			args = append(args, "--user", u)
		}
	}
	if s.Dir != "" {
		args = append(args, "--workdir", s.Dir)
	}
	volumes, err := r.volumes(s.Container)
	if err != nil {
		return c, err
	}
	// The image's entry point does not stand before a command that is given whole.
	args = append(append(args, volumes...), "--entrypoint", "", s.Image)
	c.Run = r.podman(append(args, s.Command...)...)
	return c, nil
}

func (r *Runner) podman(args ...string) []string {
	return append(slices.Clip(r.o.Command), args...)
}

// limits of CPU and memory. What does not fit is not swapped out: GPUs would wait for it.
func limits(s runner.Spec) (args []string) {
	if s.CPUMilli > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(float64(s.CPUMilli)/1000, 'f', -1, 64))
	}
	if s.MemoryMiB > 0 {
		m := strconv.FormatInt(s.MemoryMiB, 10) + "m"
		args = append(args, "--memory", m, "--memory-swap", m)
	}
	return args
}

func (r *Runner) network(c work.Container) (string, error) {
	switch {
	case c.Network == "" || c.Network == r.o.Network:
		return r.o.Network, nil
	case !slices.Contains(r.o.Networks, c.Network):
		return "", fmt.Errorf("network %s may not be used here: expected one of %s", c.Network, strings.Join(r.o.Networks, ", "))
	}
	return c.Network, nil
}

// volumes checks where each leads, after every link was followed, and gives podman that
// path: a link that is changed later leads nowhere else. A device node that lies in one
// cannot be opened, and no program there makes its caller someone else.
func (r *Runner) volumes(c work.Container) (args []string, err error) {
	for _, v := range c.Volumes {
		source, err := filepath.EvalSymlinks(v.Source)
		if err != nil && r.allowed(v.Source) { // elsewhere it is nobody's business what is there
			return nil, fmt.Errorf("volume %s: %s is not there on this host", v, v.Source)
		}
		if err != nil || !r.allowed(source) {
			return nil, fmt.Errorf("volume %s may not be mounted here: expected a folder in one of %s", v, orNone(r.o.Volumes))
		}
		if strings.ContainsAny(source, ":,\"") || strings.ContainsAny(v.Target, ",\"") {
			return nil, fmt.Errorf("volume %s: a path with a colon, a comma or a quote cannot be mounted", v)
		}
		mount := "type=bind,src=" + source + ",dst=" + v.Target + ",bind-propagation=rprivate,nosuid,nodev"
		if v.ReadOnly {
			mount += ",readonly"
		}
		args = append(args, "--mount", mount)
	}
	return args, nil
}

// allowed reports whether a path without links is in a folder that volumes may be in.
func (r *Runner) allowed(source string) bool {
	return slices.ContainsFunc(r.o.Volumes, func(dir string) bool {
		at, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return false // not there on this host
		}
		rel, err := filepath.Rel(at, source)
		return err == nil && filepath.IsLocal(rel)
	})
}

// devices is the device spec of a member: the nodes and paths that its driver named and,
// if there are any, what NVIDIA's toolkit says that every container with a GPU needs.
func (r *Runner) devices(name string, s runner.Spec) (cdi.Spec, error) {
	var e cdi.Edits
	if len(s.Nodes) > 0 {
		var err error
		if e, err = cdi.Toolkit(r.o.Toolkit); err != nil {
			return cdi.Spec{}, err
		}
	}
	for _, node := range s.Nodes {
		n := cdi.Node{Path: node}
		if r.o.Root != "" {
			n.Host = filepath.Join(r.o.Root, node)
		}
		e.Nodes = append(e.Nodes, n)
	}
	for _, p := range s.Shared {
		e.Mounts = append(e.Mounts, cdi.Mount{Host: p, Path: p, Options: []string{"rbind", "rprivate", "nosuid", "nodev"}})
	}
	return cdi.Spec{Version: cdi.Version, Kind: kind, Devices: []cdi.Device{{Name: name, Edits: e}}}, nil
}

// matches reports whether an image is like one of the patterns; without any all are. A *
// stands for anything, slashes too.
func matches(patterns []string, image string) bool {
	if len(patterns) == 0 {
		return true
	}
	flat := strings.NewReplacer("/", "\x00").Replace // path.Match lets no * pass a slash
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(flat(p), flat(image))
		return err == nil && ok
	})
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none: podman.volumes is empty"
	}
	return strings.Join(list, ", ")
}

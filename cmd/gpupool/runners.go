package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/podman"
	"github.com/gpupool/gpupool/internal/runner/process"
	"github.com/gpupool/gpupool/internal/work"
)

// taskRunner is what serve needs of a runner.
type taskRunner interface {
	runner.Runner
	runner.Suspender
	runner.LogReader
	Refuses(work.Container) error // why a task that asks for this may not run here
}

// runners makes the runner that the settings say. All of them keep members in one folder,
// so that another setting finds what runs.
func runners(ctx context.Context, c config.Config, in *access, log *slog.Logger) (taskRunner, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's own file cannot be found, and tasks need it as their shim: %w", err)
	}
	root := filepath.Join(c.Server.Data, "run")
	o := process.Options{ShimCommand: []string{exe, shimCommand}, Log: log, Checkpoint: checkpointWith(ctx, exe, c, log), Work: c.Process.Work, Secrets: in.secrets, Dirs: in.dirs}
	if o.Users, o.DefaultUser, err = users(c.Process); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && o.DefaultUser == nil && c.Server.Runner != "podman" {
		log.Warn("tasks of tenants without a user of their own run as root, and can read what is on this machine: set process.default_user, or server.runner: podman")
	}
	processes, err := process.New(root, o)
	if err != nil || c.Server.Runner == "process" {
		return noImages{processes}, err
	}
	p := c.Podman
	return podman.New(processes, root, podman.Options{
		Command: p.Command, Image: p.Image, Only: c.Server.Runner == "podman", Images: p.Images, Pull: p.Pull, Volumes: p.Volumes,
		Network: p.Network, Networks: p.Networks, Pids: p.Pids, ShmMiB: int64(p.Shm), Root: nvidiaRoot(), User: func(tenant string) string {
			if u := o.UserOf(tenant); u != nil {
				return u.String()
			}
			return ""
		},
	}), nil
}

// users reads whom tasks run as. That a task of a wrong user would fail is found here.
func users(c config.Process) (named map[string]process.User, other *process.User, err error) {
	if os.Geteuid() != 0 && (len(c.Users) > 0 || c.DefaultUser != "") {
		return nil, nil, errors.New("process.users and process.default_user need a server that is root: run it as root, or leave them out")
	}
	named = map[string]process.User{}
	for tenant, text := range c.Users { // order: of no matter
		if named[tenant], err = process.ParseUser(text); err != nil {
			return nil, nil, fmt.Errorf("process.users.%s: %w", tenant, err)
		}
	}
	if c.DefaultUser != "" {
		u, err := process.ParseUser(c.DefaultUser)
		if err != nil {
			return nil, nil, fmt.Errorf("process.default_user: %w", err)
		}
		other = &u
	}
	return named, other, nil
}

// noImages runs processes only: what is asked for in a container does not run without one.
type noImages struct{ *process.Runner }

// Start implements runner.Runner.
func (r noImages) Start(ctx context.Context, s runner.Spec) error {
	if err := r.Refuses(s.Container); err != nil {
		return r.StartIn(ctx, s, process.Container{Refused: err.Error()})
	}
	return r.Runner.Start(ctx, s)
}

// Refuses implements taskRunner.
func (noImages) Refuses(c work.Container) error {
	if c.Image != "" || len(c.Volumes) > 0 || c.Network != "" {
		return errors.New("this server runs tasks as processes (server.runner: process): leave the image, volumes and network out")
	}
	return nil
}

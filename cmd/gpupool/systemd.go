package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/systemd"
)

// tellSystemd says that the server is ready, where systemd started it, and keeps its
// watchdog quiet for as long as alive says so. What it returns says that the server stops.
func tellSystemd(ctx context.Context, alive func(context.Context) error, url string, log *slog.Logger) (stopping func()) {
	warn := func(err error) {
		if err != nil {
			log.Warn("systemd may take the server for dead", "err", err)
		}
	}
	n, err := systemd.NewNotifier(os.Getenv, os.Getpid())
	warn(err)
	warn(n.Ready("serves on " + url))
	go n.Watch(ctx, alive, warn)
	return func() { warn(n.Stopping()) }
}

// turning asks whether a host's loop turns: through the loop and the journal, as every
// call goes.
func turning(h *host.Host) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := h.Do(ctx, engine.Tick{})
		return err
	}
}

// credential is a secret that systemd hands over under this name, or "".
func credential(name string) string {
	dir := os.Getenv("CREDENTIALS_DIRECTORY")
	if dir == "" {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // the folder is systemd's, the names are constants
	if err != nil {
		return "" // not among those of the unit
	}
	return strings.TrimSpace(string(b))
}

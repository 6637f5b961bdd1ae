package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/config"
)

// checkpointCommand makes this binary one step of moving GPU memory to main memory and back
// (see package checkpoint).
const checkpointCommand = "__checkpoint"

// probeWait bounds the question whether the driver can do it.
const probeWait = 20 * time.Second

// checkpointWith is the command that moves the GPU memory of a task that is parked: the
// configured one, or this binary where the driver of real GPUs can do it, or none. The
// driver library is loaded in another process, as everywhere.
func checkpointWith(ctx context.Context, exe string, c config.Config, log *slog.Logger) []string {
	if len(c.Elastic.Checkpoint) > 0 || c.Server.Fake != "" {
		return c.Elastic.Checkpoint
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	own := []string{exe, checkpointCommand}
	out, err := exec.CommandContext(ctx, own[0], own[1], "--probe").CombinedOutput()
	said := strings.TrimSpace(strings.ToValidUTF8(string(out), "?"))
	if err != nil {
		level := slog.LevelDebug
		if _, none := os.Stat("/proc/driver/nvidia/version"); none == nil {
			level = slog.LevelWarn // who has NVIDIA's driver will want to know
		}
		log.Log(ctx, level, "what is parked keeps its GPU memory", "why", said, "err", err)
		return nil
	}
	log.Info("what is parked gives up its GPU memory", "how", said)
	return own
}

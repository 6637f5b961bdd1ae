package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/nvidia"
)

// nvmlCommand makes this binary the helper that speaks to NVML (see package nvidia).
const nvmlCommand = "__nvml"

// nvmlMain is the helper: its one argument is the library, if the settings name one.
func nvmlMain(args []string) int {
	library := ""
	if len(args) > 0 {
		library = args[0]
	}
	return nvidia.HelperMain(library)
}

// openDriver opens the GPUs to serve: the NVIDIA GPUs of this machine, unless fake ones
// are asked for or there are none. It returns the driver's name, and what to call its GPUs.
func openDriver(ctx context.Context, cfg config.Config, log *slog.Logger) (name string, d driver.Driver, hardware string, err error) {
	if cfg.Server.Fake == "" {
		gpus, err := nvidiaDriver(ctx, cfg, log)
		if err == nil {
			return "nvidia", gpus, "the NVIDIA GPUs of this machine", nil
		}
		if !errors.Is(err, nvidia.ErrNone) {
			return "", nil, "", fmt.Errorf("%w (gpupool doctor says more; --fake 8xH100-80GB serves fake GPUs instead)", err)
		}
	}
	d, hardware, err = fakeDriver(cfg.Server.Fake, cfg.Server.Data, log)
	return "fake", d, hardware, err
}

func nvidiaDriver(ctx context.Context, cfg config.Config, log *slog.Logger) (driver.Driver, error) {
	root := nvidiaRoot()
	dir := filepath.Join(cfg.Server.Data, "nvidia")
	if !nvidia.Built && !loaded(root) && !served(dir) {
		return nil, nvidia.ErrNone
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("this program's own file cannot be found, and it speaks to NVML in a process of its own: %w", err)
	}
	c := cfg.NVIDIA
	return nvidia.New(ctx, nvidia.Options{
		Dir: dir, Helper: []string{exe, nvmlCommand, c.Library}, Timeout: time.Duration(c.Timeout), Adopt: c.Adopt, Exclude: c.Exclude, DCGM: c.DCGM, Root: root, Log: log,
		MPS: nvidia.MPS{Off: c.Sharing == "time-slices", Dir: mpsDir(cfg.Server.Data)},
	})
}

// nvidiaRoot is what /proc and /dev are below in tests; "" = /.
func nvidiaRoot() string { return os.Getenv("GPUPOOL_NVIDIA_ROOT") }

// loaded tells whether the machine has NVIDIA's kernel driver.
func loaded(root string) bool {
	_, err := os.Stat(root + "/proc/driver/nvidia/version")
	return err == nil
}

// served tells whether real GPUs were served from this data folder before.
func served(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "machine.json"))
	return err == nil
}

// mpsDir is where MPS has its pipes. Tasks may run as users of their own, who cannot
// enter the data folder; so where there is a right to, they are in /run.
func mpsDir(data string) string {
	if os.Geteuid() != 0 {
		return "" // the driver's own folder
	}
	if info, err := os.Stat("/run"); err != nil || !info.IsDir() {
		return ""
	}
	h := fnv.New32a()
	h.Write([]byte(data))
	return fmt.Sprintf("/run/gpupool-mps/%08x", h.Sum32())
}

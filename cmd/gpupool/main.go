// Command gpupool turns GPUs into a shared pool. This package parses, wires and
// runs: it alone names the concrete drivers, runners and stores.
//
// It runs once per process; what a server costs as the cluster grows is said by
// the packages that it wires.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/gpupool/gpupool/internal/checkpoint"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/runner/process"
)

// version is set by the linker (see Makefile).
var version = ""

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) > 1 && os.Args[1] == shimCommand {
		return process.ShimMain(os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == checkpointCommand {
		return checkpoint.Main(os.Args[2:], os.Stdout, os.Stderr)
	}
	if len(os.Args) > 1 && os.Args[1] == nvmlCommand {
		return nvmlMain(os.Args[2:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := &cli.App{Version: versionText(), Out: os.Stdout, Err: os.Stderr, In: os.Stdin, Serve: serve, Journal: journalTool, Doctor: examine}
	return app.Main(ctx, os.Args[1:])
}

// versionText is the linker's word, or what the toolchain recorded.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

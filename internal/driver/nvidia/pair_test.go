package nvidia

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/drivertest"
	"github.com/gpupool/gpupool/internal/work"
)

// pair makes one driver of two machines, which is what the suite asks for.
type pair struct{ a, b driver.Driver }

func (p pair) of(host string) driver.Driver {
	if host == "two" {
		return p.b
	}
	return p.a
}

func (p pair) Carve(ctx context.Context, x driver.Part) ([]string, error) {
	return p.of(x.Host).Carve(ctx, x)
}

func (p pair) Free(ctx context.Context, host string, o work.Owner) error {
	return p.of(host).Free(ctx, host, o)
}

func (p pair) Observe(ctx context.Context) (driver.Inventory, error) {
	x, err := p.a.Observe(ctx)
	if err != nil {
		return x, err
	}
	y, err := p.b.Observe(ctx)
	x.Hosts, x.Parts = append(x.Hosts, y.Hosts...), append(x.Parts, y.Parts...)
	x.Verdicts, x.Faults = append(x.Verdicts, y.Verdicts...), append(x.Faults, y.Faults...)
	return x, err
}

func (p pair) Usage(ctx context.Context) ([]driver.Sample, error) {
	x, err := p.a.Usage(ctx)
	if err != nil {
		return x, err
	}
	y, err := p.b.Usage(ctx)
	return append(x, y...), err
}

func (p pair) Close() error { return errors.Join(p.a.Close(), p.b.Close()) }

// quiet logs into the test.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// options are those of a test: no MPS, a folder of its own.
func options(t testing.TB, host string) Options {
	return Options{Dir: filepath.Join(t.TempDir(), "nvidia"), Host: host, MPS: MPS{Off: true}, Log: quiet(t)}
}

func openSim(t testing.TB, s *sim, o Options) *Driver {
	t.Helper()
	d, err := open(t.Context(), o, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, d) })
	return d
}

// shut closes a driver.
func shut(t testing.TB, d *Driver) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// renumber gives the GPUs of a second machine other names.
func renumber(s *sim) *sim {
	for _, g := range s.gpus {
		g.UUID = "GPU-1" + g.UUID[5:]
	}
	return s
}

func TestConformsOverSimulatedBoards(t *testing.T) {
	for _, model := range []string{"H100-80GB", "RTX-PRO-6000-Blackwell"} {
		t.Run(model, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Driver {
				return pair{openSim(t, newSim(model, 2), options(t, "one")), openSim(t, renumber(newSim(model, 2)), options(t, "two"))}
			})
		})
	}
}

// leftovers lists the files of parts.
func leftovers(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "parts"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

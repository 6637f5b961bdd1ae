package host

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/work"
)

// withAccess is a driver whose programs need more than device ids.
type withAccess struct {
	driver.Driver
	err error
}

func (d withAccess) Access(_ context.Context, host string, o work.Owner) (driver.Access, error) {
	return driver.Access{Env: []string{"PIPE=/run/" + host}, Nodes: []string{"/dev/nvidia0"}, Mounts: []string{"/run/" + host}}, d.err
}

// specs remembers what was started.
type specs struct {
	*clockRunner
	seen []runner.Spec
}

func (r *specs) Start(ctx context.Context, s runner.Spec) error {
	r.seen = append(r.seen, s)
	return r.clockRunner.Start(ctx, s)
}

// TestAccess: a member is started with what its driver says that it must see, and not at
// all when the driver cannot say it.
func TestAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "8xH100-80GB")
		seen := &specs{clockRunner: w.runner}
		w.cfg.Runner, w.cfg.Drivers["fake"] = seen, withAccess{Driver: w.driver}
		l := w.start()
		l.setUp()
		id := l.submit(spec("1", "1s"))
		after(5 * time.Second)
		if s := l.state(id); s != work.Succeeded || len(seen.seen) != 1 {
			t.Fatalf("the task is %s after %d starts", s, len(seen.seen))
		}
		s := seen.seen[0]
		if !slices.Contains(s.Env, "PIPE=/run/"+s.Host) || !slices.Equal(s.Nodes, []string{"/dev/nvidia0"}) || !slices.Equal(s.Shared, []string{"/run/" + s.Host}) {
			t.Errorf("it was started with env %q, nodes %q, paths %q", s.Env, s.Nodes, s.Shared)
		}
		w.cfg.Drivers["fake"] = withAccess{w.driver, errPlanted}
		l.submit(spec("1", "1s"))
		after(time.Second)
		if len(seen.seen) != 1 {
			t.Error("a member was started although what it must see was not known")
		}
		if err := l.end(); err != nil {
			t.Error(err)
		}
	})
}

package podman_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpupool/gpupool/internal/runner"
	"github.com/gpupool/gpupool/internal/runner/podman"
	"github.com/gpupool/gpupool/internal/runner/podman/podmantest"
	"github.com/gpupool/gpupool/internal/runner/process"
	"github.com/gpupool/gpupool/internal/secrets"
	"github.com/gpupool/gpupool/internal/work"
)

// place is a runner with a podman of its own.
type place struct {
	*podman.Runner
	pod     *podmantest.Podman
	dir     string // of the runner
	scratch string // where temporary folders are; volumes may be in volumes below it
	next    uint64
}

func newPlace(t *testing.T, set func(*podman.Options, *place)) *place {
	t.Helper()
	p := &place{scratch: outside(t)}
	p.pod = podmantest.New(t)
	p.dir = t.TempDir()
	o := podman.Options{Command: p.pod.Command, Pull: "never", Volumes: []string{p.path("volumes")}}
	folder(t, p.path("volumes"), 0)
	if set != nil {
		set(&o, p)
	}
	var err error
	if p.Runner, err = open(p.dir, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whatever a failed test leaves
		ctx := context.Background()
		all, _ := p.List(ctx)
		for _, st := range all {
			p.Stop(ctx, st.ID, 0, "") //nolint:errcheck // best effort
			p.Wait(ctx, st.ID)        //nolint:errcheck // best effort
		}
	})
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.scratch, name) }

// folder makes one that is a user's alone.
func folder(t *testing.T, path string, uid int) {
	t.Helper()
	mode := os.FileMode(0o755)
	if uid != 0 {
		mode = 0o700
	}
	if err := os.Mkdir(path, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// spec is a member in the test's image.
func (p *place) spec(script string) runner.Spec {
	p.next++
	return runner.Spec{ID: runner.ID{Task: p.next, Epoch: 1}, Tenant: "a", Pool: "main", Host: "h1", Members: 1,
		Container: work.Container{Image: podmantest.Image}, Command: []string{"sh", "-c", script}}
}

// run lets a member run to its end and returns its output.
func (p *place) run(t *testing.T, s runner.Spec) (runner.Exit, string) {
	t.Helper()
	ctx := bound(t)
	if err := p.Start(ctx, s); err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait(ctx, s.ID)
	if err != nil || st.Exit == nil {
		t.Fatalf("waited and got %+v, %v", st, err)
	}
	l, err := p.Logs(ctx, s.ID, runner.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := io.ReadAll(l)
	if err != nil {
		t.Fatal(err)
	}
	return *st.Exit, string(b)
}

// says runs a member that must succeed and say something.
func (p *place) says(t *testing.T, s runner.Spec, want string) {
	t.Helper()
	if x, got := p.run(t, s); x.Code != 0 || strings.TrimSpace(got) != want {
		t.Errorf("it ended with %+v and said %q, want %q", x, got, want)
	}
}

// refused runs a member that must not run, and its log must say why.
func (p *place) refused(t *testing.T, s runner.Spec, why string) {
	t.Helper()
	if x, got := p.run(t, s); x.Code != 126 || !strings.Contains(got, why) {
		t.Errorf("it ended with %+v and said %q, want code 126 and %q", x, got, why)
	}
}

func bound(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestDevices: a container sees the nodes of its own slice, can open them, and no others:
// neither one that it makes, nor one that lies in a volume.
func TestDevices(t *testing.T) {
	p := newPlace(t, nil)
	dev := p.path("dev")
	folder(t, dev, 0)
	for i, name := range []string{"gpu0", "gpu1", "volumes/gpu1"} {
		at := filepath.Join(dev, name)
		if i == 2 {
			at = p.path(name)
		}
		if err := unix.Mknod(at, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil { // as /dev/zero is: readable
			t.Fatal(err)
		}
		if err := os.Chmod(at, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := p.spec("cd " + dev + "; ls; head -c 3 gpu0 | busybox wc -c; mknod /tmp/x c 1 5 && echo made; head -c 3 " + p.path("volumes/gpu1") + " && echo opened; true")
	s.Nodes = []string{filepath.Join(dev, "gpu0")}
	s.Volumes = []work.Volume{{Source: p.path("volumes"), Target: p.path("volumes")}}
	x, got := p.run(t, s)
	lines := strings.Split(got, "\n")
	if x.Code != 0 || len(lines) < 2 || lines[0] != "gpu0" || lines[1] != "3" || strings.Contains(got, "made") || strings.Contains(got, "opened") {
		t.Errorf("it ended with %+v and said %q; want it to see and read gpu0 only", x, got)
	}
	s = p.spec("ls " + dev + " || echo none")
	if _, got := p.run(t, s); !strings.HasSuffix(strings.TrimSpace(got), "none") {
		t.Errorf("without a slice it sees %q", got)
	}
	p.nothingLeft(t)
}

// TestToolkit: libraries and hooks of NVIDIA's toolkit come with a slice, its devices do
// not, and a task without a slice gets neither.
func TestToolkit(t *testing.T) {
	p := newPlace(t, func(o *podman.Options, p *place) {
		o.Toolkit = p.path("nvidia.yaml")
		write(t, p.path("libcuda.so.1"), "library\n")
		write(t, o.Toolkit, fmt.Sprintf(`cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/null
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  - TOOLKIT=yes
  deviceNodes:
  - path: /dev/nvidiactl
    hostPath: /dev/full
  hooks:
  - hookName: createContainer
    path: /bin/sh
    args: [sh, -c, "echo ran > %[1]s/hook"]
  mounts:
  - hostPath: %[1]s/libcuda.so.1
    containerPath: /usr/lib64/libcuda.so.1
    options: [ro, nosuid, nodev, bind]
`, p.scratch))
	})
	script := "echo $TOOLKIT $NVIDIA_VISIBLE_DEVICES; cat /usr/lib64/libcuda.so.1; ls /dev/nvidiactl; true"
	s := p.spec(script)
	if _, got := p.run(t, s); !strings.HasPrefix(got, "void\n") || strings.Contains(got, "library\n") {
		t.Errorf("without a slice it said %q", got)
	}
	s = p.spec(script)
	s.Nodes, s.Devices = []string{"/dev/zero"}, []string{"MIG-1"}
	if x, got := p.run(t, s); x.Code != 0 || !strings.HasPrefix(got, "yes MIG-1\nlibrary\n") || !strings.Contains(got, "No such file") {
		t.Errorf("with a slice it ended with %+v and said %q", x, got)
	}
	if b, err := os.ReadFile(p.path("hook")); err != nil || string(b) != "ran\n" {
		t.Errorf("the hook wrote %q, %v", b, err)
	}
}

// TestTenants: what is one tenant's another cannot read, and only what an admin allows is
// mounted, wherever links lead.
func TestTenants(t *testing.T) {
	p := newPlace(t, func(o *podman.Options, _ *place) {
		o.User = func(tenant string) string { return map[string]string{"a": "2001:2001", "b": "2002:2002"}[tenant] }
		o.Images = []string{"gpupool.test/*"}
	})
	folder(t, p.path("volumes/a"), 2001)
	folder(t, p.path("secret"), 0)
	write(t, p.path("volumes/a/file"), "of a\n")
	write(t, p.path("secret/file"), "of the host\n")
	if err := os.Symlink(p.path("secret"), p.path("volumes/link")); err != nil {
		t.Fatal(err)
	}
	volume := func(s runner.Spec, source string) runner.Spec {
		s.Volumes = []work.Volume{{Source: p.path(source), Target: "/v"}}
		return s
	}
	p.says(t, volume(p.spec("cat /v/file; id -u"), "volumes/a"), "of a\n2001")
	s := volume(p.spec("cat /v/file || echo denied"), "volumes/a")
	s.Tenant = "b"
	if _, got := p.run(t, s); !strings.Contains(got, "denied") || strings.Contains(got, "of a") {
		t.Errorf("b read what is a's: %q", got)
	}
	p.says(t, p.spec("ls "+p.scratch+" 2>/dev/null || echo none"), "none")
	p.refused(t, volume(p.spec(""), "secret"), "may not be mounted here")
	p.refused(t, volume(p.spec(""), "volumes/link"), "may not be mounted here")
	p.refused(t, volume(p.spec(""), "volumes/none"), "is not there")
	s = volume(p.spec("echo no > /v/new"), "volumes/a")
	s.Volumes[0].ReadOnly = true
	if x, got := p.run(t, s); x.Code == 0 || !strings.Contains(got, "Read-only") {
		t.Errorf("it wrote to a volume that is to be read: %+v %q", x, got)
	}
	s = p.spec("true")
	s.Image = "docker.io/library/miner"
	p.refused(t, s, "may not be run here")
	s = p.spec("true")
	s.Network = "host"
	p.refused(t, s, "network host may not be used here")
	s = p.spec("true")
	s.Image = ""
	s.Volumes = []work.Volume{{Source: "/", Target: "/v"}}
	p.refused(t, s, "runs as a process")
}

// TestPrivileges: no capability, no way to get one, system calls filtered, a root that is
// only read, and no network.
func TestPrivileges(t *testing.T) {
	p := newPlace(t, nil)
	x, got := p.run(t, p.spec(`grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
echo x > /x || echo root is read only
echo x > /tmp/x && echo tmp is not
grep -c : /proc/net/dev
cat /proc/1/cmdline | head -c 17; echo; echo $HOME`))
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "root is read only", "tmp is not", "\n1\n", "/run/podman-init", "\n/tmp\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("it ended with %+v and said %q, want %q", x, got, want)
		}
	}
}

// TestEnvironment: any value reaches the program, and nobody else: command lines can be
// read by every user of a machine.
func TestEnvironment(t *testing.T) {
	p := newPlace(t, nil)
	if err := (secrets.Store{Dir: p.dir + "-secrets"}).Set("a", "token", "battery-staple"); err != nil {
		t.Fatal(err)
	}
	s := p.spec(`echo "$KEY"; echo $SECRET; echo $PATH; cat ` + p.path("volumes/gate") + ` >/dev/null`)
	s.Env = []string{"KEY=first\nsecond = 'x' \"y\" $HOME #z", "PATH=/bin:/other"}
	s.Secrets = []string{"SECRET=token"}
	s.Volumes = []work.Volume{{Source: p.path("volumes"), Target: p.path("volumes")}}
	if err := unix.Mkfifo(p.path("volumes/gate"), 0o666); err != nil {
		t.Fatal(err)
	}
	seen := make(chan bool, 1)
	go func() {
		gate, err := os.OpenFile(p.path("volumes/gate"), os.O_WRONLY, 0) // opens when the program has come that far
		found := err != nil
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range lines {
			b, _ := os.ReadFile(name)
			found = found || strings.Contains(string(b), "second = 'x'") || strings.Contains(string(b), "battery-staple")
		}
		gate.Close() //nolint:errcheck // nothing was written
		seen <- found
	}()
	p.says(t, s, "first\nsecond = 'x' \"y\" $HOME #z\nbattery-staple\n/bin:/other")
	if <-seen {
		t.Error("a value stands in a command line")
	}
	s = p.spec("true")
	s.Secrets = []string{"nothing"}
	p.refused(t, s, "has no secret")
}

// TestMemory: what takes more than its limit is killed, and that is said.
func TestMemory(t *testing.T) {
	p := newPlace(t, nil)
	s := p.spec("x=aaaaaaaaaaaaaaaa; i=0; while [ $i -lt 24 ]; do x=$x$x; i=$((i+1)); done; echo 256 MiB")
	s.MemoryMiB = 32
	x, got := p.run(t, s)
	if x.Code != 137 || x.Signal != "SIGKILL" || !x.OOM {
		t.Errorf("it ended with %+v and said %q, want it killed for its memory", x, got)
	}
	if x, _ := p.run(t, p.spec("kill -9 $$")); x.Code != 137 || x.OOM {
		t.Errorf("it ended with %+v, want it killed, and not for its memory", x)
	}
	s = p.spec("i=0; while [ $i -lt 60 ]; do sleep 100 & i=$((i+1)); done; echo all")
	p.Runner, _ = open(p.dir, podman.Options{Command: p.pod.Command, Pull: "never", Pids: 20})
	if x, got := p.run(t, s); x.Code == 0 || strings.Contains(got, "all") {
		t.Errorf("it started more processes than it may: %+v %q", x, got)
	}
}

// TestStopWhileBeginning: who is told to end in any moment of its beginning ends, and does
// not begin after all: there is none to tell between the container and its program.
func TestStopWhileBeginning(t *testing.T) {
	p := newPlace(t, nil)
	ctx := bound(t)
	for range 6 {
		s := p.spec("sleep 1000")
		if err := p.Start(ctx, s); err != nil {
			t.Fatal(err)
		}
		for { // until the container is there, and its program perhaps is not
			if b, err := os.ReadFile(p.PIDFile(s.ID)); err == nil && len(b) > 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("the container was never made")
			}
			time.Sleep(time.Millisecond)
		}
		if err := p.Stop(ctx, s.ID, time.Hour, ""); err != nil {
			t.Fatal(err)
		}
		if st, err := p.Wait(ctx, s.ID); err != nil || st.Exit.Code != 143 || st.Exit.Signal != "SIGTERM" {
			t.Fatalf("got %+v, %v; want it ended by SIGTERM", st, err)
		}
	}
	p.nothingLeft(t)
}

// TestServerKilled: a member outlives its server, and the next one finds its true end.
func TestServerKilled(t *testing.T) {
	p := newPlace(t, nil)
	ctx, id := bound(t), runner.ID{Task: 1, Epoch: 1}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+p.dir, "GPUPOOL_TEST_PODMAN="+strings.Join(p.pod.Command, " "))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	cmd.Process.Kill() //nolint:errcheck // it runs
	cmd.Wait()         //nolint:errcheck // killed
	if err != nil || line != "started <nil>\n" {
		t.Fatalf("the server said %q, %v", line, err)
	}
	l, err := p.Logs(ctx, id, runner.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := io.ReadFull(l, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	if all, err := p.List(ctx); err != nil || len(all) != 1 || all[0].State != runner.Running || all[0].PID == 0 {
		t.Fatalf("after the server's death: %+v, %v; want the member running", all, err)
	}
	if err := p.Stop(ctx, id, time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(ctx, id); err != nil || st.Exit == nil || st.Exit.Code != 8 {
		t.Fatalf("got %+v, %v; want the true exit code 8", st, err)
	}
	p.nothingLeft(t)
}

// TestShimKilled: without its shim a member is over, and nothing of it is left: no
// process, no container, no device spec.
func TestShimKilled(t *testing.T) {
	p := newPlace(t, nil)
	ctx := bound(t)
	s := p.spec("setsid sleep 1000 & echo $! > " + p.path("volumes/child") + "; echo up; wait")
	s.Volumes = []work.Volume{{Source: p.path("volumes"), Target: p.path("volumes")}}
	if err := p.Start(ctx, s); err != nil {
		t.Fatal(err)
	}
	l, err := p.Logs(ctx, s.ID, runner.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(l, make([]byte, len("up\n"))); err != nil {
		t.Fatal(err)
	}
	l.Close()
	b, err := os.ReadFile(p.path("volumes/child"))
	if err != nil {
		t.Fatal(err)
	}
	var inner, shim int
	fmt.Sscan(string(b), &inner) //nolint:errcheck // checked below
	child := inside{p.Runner, ""}.HostPID(s.ID, inner)
	if b, err = os.ReadFile(filepath.Join(p.dir, s.ID.String(), "lock")); err == nil {
		_, err = fmt.Sscan(string(b), &shim)
	}
	if err != nil || child == 0 {
		t.Fatalf("shim %d, child %d, %v", shim, child, err)
	}
	if err := syscall.Kill(shim, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait(ctx, s.ID)
	if err != nil || st.Exit == nil || !strings.Contains(st.Exit.Lost, "shim") {
		t.Fatalf("got %+v, %v; want it lost", st, err)
	}
	if err := syscall.Kill(child, 0); err == nil {
		t.Errorf("its child %d is left", child)
	}
	if err := p.Start(ctx, s); err != nil {
		t.Fatal(err)
	}
	if st, err = p.Wait(ctx, s.ID); err != nil || st.Exit.Lost == "" {
		t.Fatalf("a lost member was started again: %+v, %v", st, err)
	}
	p.nothingLeft(t)
}

// nothingLeft checks that no container and no device spec of the runner is there.
func (p *place) nothingLeft(t *testing.T) {
	t.Helper()
	if left := p.pod.Run(t, "ps", "--all", "--quiet"); left != "" {
		t.Errorf("containers are left: %s", left)
	}
	if left, _ := filepath.Glob("/var/run/cdi/gpupool-*-" + process.Instance(p.dir) + ".json"); len(left) > 0 {
		t.Errorf("device specs are left: %v", left)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/fake"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/metrics"
	"github.com/gpupool/gpupool/internal/scaleout"
	"github.com/gpupool/gpupool/internal/tracing"
	"github.com/gpupool/gpupool/internal/web"
	"github.com/gpupool/gpupool/internal/work"
)

// shimCommand makes this binary the shim of one member (see package process).
const shimCommand = "__shim"

const (
	defaultFake  = "8xH100-80GB"
	shutdownWait = 5 * time.Second
)

// serve runs the pool until ctx ends. The order matters: the journal's lock makes
// this the only server over the data folder before anything else is touched.
func serve(ctx context.Context, o cli.ServeOptions) error {
	log := slog.New(slog.NewTextHandler(o.Err, &slog.HandlerOptions{Level: level(o.Verbose)}))
	data := o.Config.Server.Data
	if err := makeDataDir(data); err != nil {
		return err
	}
	j, shared, err := openJournal(ctx, o, log)
	if err != nil {
		return err
	}
	defer j.Close()
	listener, err := listen(ctx, o.Config.Server.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	in, err := newAccess(o.Config, log)
	if err != nil {
		return err
	}
	defer in.close()
	if err := in.mayServe(listener.Addr(), o.Config.Server.Insecure, log); err != nil {
		return err
	}
	watch, scrapes, err := watching(o)
	if err != nil {
		return err
	}
	name, drv, hardware, err := openDriver(ctx, o.Config, log)
	if err != nil {
		return err
	}
	defer drv.Close()
	runs, err := runners(ctx, o.Config, in, log)
	if err != nil {
		return err
	}
	traces, err := tracer(o, log)
	if err != nil {
		return err
	}
	defer closeTracer(traces)
	if traces != nil {
		watch.Traces(traces.Dropped)
	}
	cfg := host.Config{
		Engine: engineConfig(o), Journal: j, Drivers: map[string]driver.Driver{name: watch.Driver(name, drv)}, Runner: runs, Watch: watch,
		ObserveEvery: time.Duration(o.Config.Elastic.Scan), Log: log, ScaleOut: scaleOut(o.Config.Queue.ScaleOut), Trace: traceOf(traces),
	}
	s := server{listener: listener, runs: runs, in: in, hardware: hardware, log: log, traces: traces, o: o, watch: watch, scrapes: scrapes}
	if shared != nil {
		return newCluster(s, cfg, shared).run(ctx)
	}
	if s.host, err = host.Open(ctx, cfg); err != nil {
		return err
	}
	if err := notOlder(s.host, filepath.Join(data, "run")); err != nil {
		return err
	}
	watch.Seed(s.host)
	return runServer(ctx, s)
}

// hostsWait is how long the first answer of the drivers is waited for.
const hostsWait = 5 * time.Second

// firstHosts waits until hosts are known, for a while: before that a task that no host
// could ever hold would be accepted, and wait.
func firstHosts(ctx context.Context, h *host.Host) {
	ctx, cancel := context.WithTimeout(ctx, hostsWait)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for known := false; ; {
		if h.Read(func(e *engine.Engine) { known = len(e.Hosts()) > 0 }); known {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// server is what runServer needs.
type server struct {
	host     *host.Host
	listener net.Listener
	runs     taskRunner
	in       *access
	hardware string
	log      *slog.Logger
	traces   *tracing.Tracer // nil: none
	o        cli.ServeOptions
	watch    *metrics.Metrics
	scrapes  string // the token for them
}

// runServer lets the host and the HTTP server run side by side until ctx ends or
// one of them fails.
func runServer(ctx context.Context, s server) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.traces != nil {
		s.traces.Follow(s.host)
	}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- s.host.Run(ctx)
	}()
	go s.watch.Run(ctx)
	go s.in.run(ctx)
	pools := s.o.Config.WorkPools()
	if _, err := s.host.Do(ctx, engine.SetPools{Pools: pools}); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	if err := firstTenant(ctx, s.host); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	firstHosts(ctx, s.host)
	handler, err := s.handler()
	if err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	srv := newHTTPServer(ctx, handler, s.log)
	go func() {
		defer cancel()
		if err := serveOn(srv, s.listener, s.in); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the API stopped", "err", err)
		}
	}()
	info := s.info()
	if err := writeServerFile(s.o.Config.Server.Data, info); err != nil {
		s.log.Warn("clients will not find the server by themselves", "err", err)
	}
	s.o.Ready(info.URL, s.o.Config.Server.Data, s.hardware)
	stopping := tellSystemd(ctx, turning(s.host), info.URL, s.log)
	<-ctx.Done()
	stopping()
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer done()
	if err := srv.Shutdown(bound); err != nil {
		srv.Close() //nolint:errcheck // nothing is left to do about it
	}
	err = <-ended
	s.host.Read(func(e *engine.Engine) {
		if n := len(e.Leases()); n > 0 {
			s.log.Info("tasks go on running without the server; the next start finds them", "tasks", n)
		}
	})
	return err
}

// info is what clients on this machine need to find the server.
func (s server) info() cli.ServerInfo {
	return s.in.info(s.listener.Addr(), s.o.Config.Server.TLS.Cert)
}

// handler is the API and the page over the host.
func (s server) handler() (http.Handler, error) {
	handler, err := api.New(s.in.into(api.Config{
		Host: s.host, Logs: s.runs, Refuses: s.runs.Refuses, DefaultPool: s.o.Config.WorkPools()[0].Name,
		Version: s.o.Version, Hardware: s.hardware, Log: s.log,
		Metrics: s.watch.Handler(), Scrapes: api.Scrapes(s.o.Config.Metrics.Open), MetricsToken: api.HashToken(s.scrapes),
	}))
	if err == nil {
		handler, err = web.New(handler)
	}
	if err != nil {
		return nil, err
	}
	return traced(s.traces, handler), nil
}

// firstTenant gives a pool that was never used one tenant, so that the first command
// of someone who only wants to try works.
func firstTenant(ctx context.Context, h *host.Host) error {
	used := false
	h.Read(func(e *engine.Engine) { used = e.LastTask() > 0 || len(e.Tenants()) > 0 })
	if used {
		return nil
	}
	_, err := h.Do(ctx, engine.SetTenant{Tenant: work.Tenant{Name: "default"}})
	return err
}

// urlOf is where clients on this machine reach the server.
func urlOf(addr net.Addr) string {
	if a, ok := addr.(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	return "http://" + addr.String()
}

func level(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func engineConfig(o cli.ServeOptions) engine.Config {
	cfg := engine.Config{
		AllocTimeout: time.Duration(o.Config.Allocation.Timeout), AllocRetries: o.Config.Allocation.Retries,
		Sharers: o.Config.Sharing.Tasks, Topology: o.Config.Allocation.Topology, Grace: time.Duration(o.Config.Allocation.Grace), KeepEnded: o.Config.Server.Keep,
	}
	for _, m := range gpu.Builtin() {
		cfg.Models = append(cfg.Models, gpu.NewGeometry(m))
	}
	return cfg
}

// scaleOut is whom to ask for more GPUs, or nil.
func scaleOut(c config.ScaleOut) host.ScaleOut {
	if !c.Any() {
		return nil
	}
	return scaleout.Hook{Command: c.Command, Webhook: c.Webhook}
}

func makeDataDir(data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("the data folder %s cannot be made: %w; give another with --data", data, err)
	}
	probe, err := os.CreateTemp(data, ".probe-*")
	if err != nil {
		return fmt.Errorf("the data folder %s cannot be written: %w; make it writable for this user, or give another with --data", data, err)
	}
	probe.Close()           //nolint:errcheck // empty
	os.Remove(probe.Name()) //nolint:errcheck // made just now
	return nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s is in use by another program: stop that, or give another address with --listen (port 0 takes a free one)", addr)
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w; expected an address such as 127.0.0.1:8470", addr, err)
	}
	return l, nil
}

// keptToken reads a token, or makes one at the first start.
// One that systemd hands over (LoadCredential=) comes first, and is not written down.
func keptToken(path, what string, fresh func() string) (string, error) {
	if t := credential(filepath.Base(path)); t != "" {
		return t, nil
	}
	b, err := os.ReadFile(path)
	if err == nil {
		if t := strings.TrimSpace(string(b)); t != "" {
			return t, nil
		}
		return "", fmt.Errorf("%s is empty: remove it, and the next start makes a new %s token", path, what)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the %s token cannot be read: %w", what, err)
	}
	t := fresh()
	if err := writeNew(path, []byte(t+"\n")); errors.Is(err, fs.ErrExist) { // another server was first
		return keptToken(path, what, fresh)
	} else if err != nil {
		return "", err
	}
	return t, nil
}

// writeFile puts a file in place whole or not at all, readable by this user only.
func writeFile(path string, b []byte) error { return place(path, b, os.Rename) }

// writeNew does so if there is none yet.
func writeNew(path string, b []byte) error { return place(path, b, os.Link) }

func place(path string, b []byte, put func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed already when all went well
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = put(f.Name(), path)
	}
	return err
}

func writeServerFile(data string, info cli.ServerInfo) error {
	b, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(data, cli.ServerFile), b)
}

// fakeDriver makes the GPUs that are not real, and says so. How busy each task keeps them,
// and what goes wrong with them, can be written into files in the data folder.
func fakeDriver(shape, data string, log *slog.Logger) (driver.Driver, string, error) {
	why := "as asked by --fake"
	if shape == "" {
		shape, why = defaultFake, "as this machine has no NVIDIA GPU"
	}
	hosts, err := fake.ParseHosts(shape)
	if err != nil {
		return nil, "", err
	}
	d, err := fake.New(hosts, gpu.Builtin(), fake.Options{Load: fake.LoadFile(filepath.Join(data, "fake-load"), func(err error) { log.Warn("the load of fake GPUs stays as it was", "err", err) })})
	if err != nil {
		return nil, "", err
	}
	faults := func(err error) { log.Warn("a line about faults of fake GPUs is not understood", "err", err) }
	return fake.Faulty(d, filepath.Join(data, "fake-faults"), faults), fmt.Sprintf("fake GPUs (%s), %s: processes are real, GPUs are not", shape, why), nil
}

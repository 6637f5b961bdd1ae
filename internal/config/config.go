// Package config reads the configuration file: every setting has a default, so an
// empty file is a valid one, and what is not understood is refused with its line.
//
// The tags of Config are the one source of the defaults, of the schema and of
// config.example.yaml. Nothing here grows with the cluster; the file is read once,
// at start.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gpupool/gpupool/internal/work"
)

// Config is everything that can be set. Fields with the tag since are accepted so
// that a file can be written once, and take effect in the version that is named.
type Config struct {
	Server     Server     `yaml:"server" doc:"The server itself."`
	NVIDIA     NVIDIA     `yaml:"nvidia" doc:"The NVIDIA GPUs of this machine (docs/nvidia.md)."`
	Journal    Journal    `yaml:"journal" doc:"Where the state is kept (docs/high-availability.md)."`
	Process    Process    `yaml:"process" doc:"Tasks that run as processes (docs/containers.md)."`
	Podman     Podman     `yaml:"podman" doc:"Tasks that run in containers (docs/containers.md)."`
	Pools      []Pool     `yaml:"pools,omitempty" doc:"Pools, in order: the first whose pattern matches takes a host. Without any there is one, named default, with every host."`
	Queue      Queue      `yaml:"queue" doc:"Waiting work."`
	Allocation Allocation `yaml:"allocation" doc:"From placed to running."`
	Sharing    Sharing    `yaml:"sharing" doc:"Several tasks on one GPU."`
	Elastic    Elastic    `yaml:"elastic" doc:"Taking back what idles."`
	Metrics    Metrics    `yaml:"metrics" doc:"What Prometheus reads at /metrics (docs/observability.md)."`
	Alerts     Alerts     `yaml:"alerts" doc:"When someone should look."`
	Tracing    Tracing    `yaml:"tracing" doc:"A trace of each task (docs/tracing.md)."`
	Auth       Auth       `yaml:"auth" doc:"Who may come in beside those with a token of gpupool (docs/security.md)."`
	Limits     Limits     `yaml:"limits" doc:"What callers may ask of the API; beyond it they get 429 and a time to retry."`
	Audit      Audit      `yaml:"audit" doc:"The log of who did what."`
	Tasks      Tasks      `yaml:"tasks" doc:"What tasks may ask of a host."`
	Agent      Agent      `yaml:"agent" doc:"What gpupool itself may cost on a host; alerts watch it."`
}

// Server is where the server listens and keeps its state.
type Server struct {
	Listen string `yaml:"listen" default:"127.0.0.1:8470" doc:"Address of the API. Only this machine by default; others are served with TLS, or with insecure."`
	Data   string `yaml:"data" default:"" doc:"Folder of the journal, tokens and logs. Empty: $GPUPOOL_DATA, else ~/.local/share/gpupool."`
	Fake   string `yaml:"fake" default:"" doc:"Fake GPUs to serve, such as 8xH100-80GB or 2x8xA100-80GB. Empty: the NVIDIA GPUs of this machine, or eight fake H100s where there are none."`
	Runner string `yaml:"runner" default:"auto" enum:"auto,process,podman" doc:"auto: tasks that name an image run in containers, others as processes. process: an image is refused. podman: a task without an image is refused, unless podman.image is set."`
	Keep   int    `yaml:"keep_ended" default:"10000" doc:"Ended tasks kept for questions; the oldest are forgotten beyond it."`

	TLS      TLS  `yaml:"tls" doc:"Serve with TLS."`
	Insecure bool `yaml:"insecure" default:"false" doc:"Serve other machines without TLS: tokens then cross the network readable, unless a proxy in front ends TLS."`
}

// NVIDIA is about the real GPUs of this machine.
type NVIDIA struct {
	Adopt   []string `yaml:"adopt,omitempty" example:"[0, GPU-5a3c1f2e-0000-4000-8000-000000000001]" doc:"GPUs, by index or UUID, to take over although something is on them: MIG instances that idle are removed at start. Others are taken if nothing is on them."`
	Exclude []string `yaml:"exclude,omitempty" example:"[7]" doc:"GPUs, by index or UUID, to leave alone."`
	Sharing string   `yaml:"sharing" default:"mps" enum:"mps,time-slices" doc:"How tasks share a GPU that is not cut: by MPS, which caps memory, where nvidia-cuda-mps-control is installed; or by taking turns."`
	DCGM    string   `yaml:"dcgm" default:"" example:"http://127.0.0.1:9400/metrics" doc:"Metrics of a dcgm-exporter on this machine, for what NVML does not tell: how busy MIG instances of an A100 are. Empty: none."`
	Library string   `yaml:"library" default:"" doc:"File of NVML. Empty: the libnvidia-ml.so.1 that the system finds."`
	Timeout Duration `yaml:"timeout" default:"10s" doc:"Longest call of NVML before the process that makes it is killed and started again. MIG steps may take three times as long, a change of MIG mode six times."`
}

// Pool is a named group of hosts with one policy.
type Pool struct {
	Name  string   `yaml:"name" doc:"One word."`
	Hosts []string `yaml:"hosts,omitempty" doc:"Name patterns of its hosts, with * and ?. Empty: every host that no earlier pool took."`
	Mode  string   `yaml:"mode" default:"dynamic" enum:"static,shadow,dynamic" doc:"static: whole GPUs, exclusive. shadow: static, and it says what dynamic would have done. dynamic: slices and shares, and what idles is taken back."`
	TTL   Duration `yaml:"ttl,omitempty" doc:"Longest wait of its tasks; queue.ttl if left out."`

	PriorityWeight *float64 `yaml:"priority_weight,omitempty" doc:"queue.priority_weight if left out."`
	Capacity       *int     `yaml:"capacity,omitempty" doc:"queue.capacity if left out."`
	AskForMore     *int     `yaml:"ask_for_more_at,omitempty" doc:"queue.ask_for_more_at if left out."`
	BackPressure   *Percent `yaml:"back_pressure_at,omitempty" doc:"queue.back_pressure_at if left out."`
	BorrowFrom     []string `yaml:"borrow_from,omitempty" doc:"Pools whose idle GPUs its tasks may use while more wait than ask_for_more_at; they are given back when those pools need them."`
	LendGPUs       float64  `yaml:"lend_gpus,omitempty" doc:"GPUs that tasks of other pools hold at most; 0 = all that idle and that it does not reserve."`
	ReserveGPUs    float64  `yaml:"reserve_gpus,omitempty" doc:"GPUs that training leaves free, so that inference and interactive work starts at once."`
}

// Queue is how work waits.
type Queue struct {
	TTL            Duration `yaml:"ttl" default:"1h" doc:"Longest wait; then a task is expired, so that no one finds stale work running days later. 0s: no end."`
	PriorityWeight float64  `yaml:"priority_weight" default:"0.7" doc:"How much priority counts against age and fair share, 0 to 1: 0.7 suits pools that mostly train."`
	Capacity       int      `yaml:"capacity" default:"1000" doc:"Tasks that may wait in a pool: more would wait for longer than anyone plans ahead. 0: no bound."`
	BackPressure   Percent  `yaml:"back_pressure_at" default:"80%" doc:"Share of the queue's capacity beyond which new tasks get 429 and a time to retry; the rest is kept for high priority."`
	AskForMore     int      `yaml:"ask_for_more_at" default:"10" doc:"Waiting tasks of a pool beyond which it asks for more GPUs (borrow_from, scale_out) and refuses low priority. 0: never."`
	MinRuntime     Duration `yaml:"min_runtime" default:"10m" doc:"Run time before which nobody is preempted, so that work gets somewhere between two interruptions."`
	Preemptions    int      `yaml:"preemptions_per_hour" default:"60" doc:"Preemptions of a pool in any hour at most, so that guarantees cannot make it thrash. 0: no limit."`
	ScaleOut       ScaleOut `yaml:"scale_out" doc:"Whom to ask for more GPUs from outside."`
}

// ScaleOut is whom to ask for more GPUs.
type ScaleOut struct {
	Command  []string `yaml:"command,omitempty" example:"[/usr/local/bin/more-gpus]" doc:"Run with GPUPOOL_POOL, GPUPOOL_WAITING and GPUPOOL_GPUS set, for 30 s at most. Empty: none."`
	Webhook  string   `yaml:"webhook" default:"" doc:"Address that gets a POST of {\"pool\", \"waiting\", \"gpus\"}, for 30 s at most. Empty: none."`
	Cooldown Duration `yaml:"cooldown" default:"10m" doc:"Between two calls for one pool: time for machines to start."`
}

// Any reports whether there is someone to ask.
func (s ScaleOut) Any() bool { return len(s.Command) > 0 || s.Webhook != "" }

// Allocation is the way from placed to running.
type Allocation struct {
	Timeout  Duration `yaml:"timeout" default:"30s" doc:"From placed to running; then the task goes back to its place in line and is tried elsewhere, as a carve that takes longer hangs."`
	Retries  int      `yaml:"retries" default:"5" doc:"Allocations that may fail before the task fails: the fault then follows the task, not the GPU."`
	Grace    Duration `yaml:"grace" default:"10s" doc:"Between SIGTERM and SIGKILL for tasks that name none: time to write a checkpoint."`
	Topology []string `yaml:"topology,omitempty" example:"[rack]" doc:"Host labels that name groups of hosts near each other, widest first, such as [zone, rack]: a gang stays within one group where it can. Empty: rack."`
	Smallest string   `yaml:"smallest_slice" default:"1/7" doc:"Smallest slice given to a light task without being asked for: the finest MIG cut of a seven-slice board."`
	Largest  string   `yaml:"largest_slice" default:"1/2" doc:"Largest slice given so; a task that needs more keeps its whole GPU."`
}

// Sharing is about several tasks on one GPU.
type Sharing struct {
	Tasks int `yaml:"tasks_per_gpu" default:"4" doc:"Tasks that share one GPU at most: beyond that they slow each other down."`
}

// Alerts are the bounds that wake someone.
type Alerts struct {
	Utilisation Percent  `yaml:"utilisation_below" default:"50%" doc:"Pool utilisation under which GPUs are wasted."`
	For         Duration `yaml:"for" default:"5m" doc:"How long it must last, so that a gap between two tasks wakes no one. It is in the rules that gpupool config rules prints."`
	Waiting     int      `yaml:"waiting_above" default:"5" doc:"Waiting tasks beyond which a pool is too small."`
	Waited      Percent  `yaml:"waited_of_ttl_above" default:"50%" doc:"Share of its TTL that a task has waited for, beyond which someone should look before it expires."`
	Carves      int      `yaml:"carves_failed_above" default:"2" doc:"Failed carves of a pool in ten minutes, beyond which it is not one bad moment of one GPU."`
	Journal     Duration `yaml:"journal_above" default:"100ms" doc:"Time of a commit, at the 99th percentile, beyond which the disk holds up every call."`
	Overdue     Duration `yaml:"overdue_above" default:"10m" doc:"How long slices that should be free may stand: freeing is tried again with a back-off that ends at ten minutes."`
}

// Agent is what gpupool itself may cost.
type Agent struct {
	CPU    Percent `yaml:"cpu_below" default:"5%" doc:"Of one core: watching must not cost what it saves."`
	Memory Size    `yaml:"memory_below" default:"100MiB" doc:"Main memory on each host."`
}

// DefaultPool is the name of the pool that there is when none is named.
const DefaultPool = "default"

// Default is the configuration of an empty file.
func Default() Config {
	var c Config
	if err := fill(&c); err != nil {
		panic(err) // a default in the tags above is malformed; TestDefaults would have told
	}
	return c
}

// Check says what is wrong with settings that did not come from a file.
func (c Config) Check() error {
	if err := c.check(); err != nil {
		return &Error{err.Error()}
	}
	return nil
}

// Error is a fault in a configuration file.
type Error struct{ Msg string }

func (e *Error) Error() string { return e.Msg }

// Load reads a file.
func Load(path string) (Config, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Config{}, &Error{fmt.Sprintf("there is no configuration file %s: give its path, or leave --config out for the defaults", path)}
		}
		return Config{}, &Error{fmt.Sprintf("the configuration file cannot be read: %s", err)}
	}
	return Parse(path, b)
}

// Parse reads the text of a file; name is for errors.
func Parse(name string, b []byte) (Config, error) {
	c := Default()
	if len(bytes.TrimSpace(b)) > 0 {
		if err := Unmarshal(name, b, &c); err != nil {
			return Config{}, err
		}
	}
	for i := range c.Pools {
		if c.Pools[i].Mode == "" {
			c.Pools[i].Mode = string(work.Dynamic)
		}
	}
	if err := c.check(); err != nil {
		return Config{}, &Error{fmt.Sprintf("%s: %s", name, err)}
	}
	return c, nil
}

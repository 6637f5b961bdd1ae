// Package apitype is what goes over the wire: the JSON bodies of the HTTP API,
// shared by the server and every client. A task file has the shape of TaskSpec.
//
// It is data and the conversion of a submission into core words. Sizes and
// durations are written as people write them ("20GiB", "1h30m"); times are RFC
// 3339. Nothing here grows with the cluster.
package apitype

import (
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// TaskSpec is what a tenant submits.
type TaskSpec struct {
	Name      string   `json:"name,omitempty" maxLength:"256" doc:"For people; need not be unique"`
	Tenant    string   `json:"tenant,omitempty" maxLength:"128" doc:"Who pays. A tenant's token may leave it out; an admin may name any tenant"`
	Pool      string   `json:"pool,omitempty" maxLength:"128" doc:"Where to run; the first pool if left out"`
	Priority  string   `json:"priority,omitempty" enum:"high,normal,low" doc:"normal if left out"`
	Class     string   `json:"class,omitempty" enum:"training,inference,interactive" doc:"What kind of work it is"`
	GPUs      string   `json:"gpus,omitempty" maxLength:"256" doc:"A count (2), a fraction (0.3, 1/7), a MIG profile (3g.40gb) or a memory size (20GiB); with a model after a colon (2:H100-80GB). 2..8 asks for 2 and can make use of up to 8, as max says. 1 if left out, 0 for none" example:"1/7"`
	GPUMemory string   `json:"gpu_memory,omitempty" maxLength:"32" doc:"Memory needed of each GPU, or of the part of one" example:"20GiB"`
	Isolation string   `json:"isolation,omitempty" enum:"mig,shared,any" doc:"How a part may be cut: MIG unless the model has none"`
	Members   int      `json:"members,omitempty" minimum:"0" maximum:"16384" doc:"Gang size: that many members, each with the GPUs asked for, all or nothing"`
	CPUs      float64  `json:"cpus,omitempty" minimum:"0" doc:"CPU cores of each member"`
	Memory    string   `json:"memory,omitempty" maxLength:"32" doc:"Main memory of each member" example:"16GiB"`
	Command   []string `json:"command" minItems:"1" maxItems:"4096" doc:"The program and its arguments; no shell is involved"`
	Dir       string   `json:"dir,omitempty" maxLength:"4096" doc:"Working directory on the host; one of its own if left out"`
	Env       []string `json:"env,omitempty" maxItems:"4096" doc:"Environment, KEY=VALUE. It is kept with the task: for what nobody may see there are secrets"`
	Secrets   []string `json:"secrets,omitempty" maxItems:"256" doc:"Environment from secrets of the tenant, VARIABLE=NAME, or NAME where it is the variable's too: looked up when the task starts, and kept nowhere else" example:"[\"HF_TOKEN\"]"`
	Image     string   `json:"image,omitempty" maxLength:"512" doc:"Run it in a container of this image; without one as a process, or as the server decides" example:"docker.io/library/python:3.12"`
	Volumes   []Volume `json:"volumes,omitempty" maxItems:"64" doc:"Folders of the host that the container sees; the server says which may be mounted"`
	Network   string   `json:"network,omitempty" enum:"none,host,bridge" doc:"What the container reaches; as the server decides if left out"`
	Grace     string   `json:"grace,omitempty" maxLength:"32" doc:"Between SIGTERM and SIGKILL" example:"10s"`
	TTL       string   `json:"ttl,omitempty" maxLength:"32" doc:"Longest wait in the queue, then it is expired; the pool's if left out, none for no end" example:"1h"`

	MaxRuntime string            `json:"max_runtime,omitempty" maxLength:"32" doc:"Longest run, over all its attempts; then it is ended and has failed. No end if left out" example:"4h"`
	Estimate   string            `json:"estimate,omitempty" maxLength:"32" doc:"Your guess at how long it runs: a good one lets it be fitted in sooner" example:"2h"`
	Checkpoint string            `json:"checkpoint_every,omitempty" maxLength:"32" doc:"It saves its work this often, so that it may be stopped and begun again" example:"15m"`
	Deadline   string            `json:"deadline,omitempty" maxLength:"64" doc:"It should have ended by then (RFC 3339): its turn comes in time where that is possible" example:"2026-12-03T08:00:00Z"`
	After      []uint64          `json:"after,omitempty" maxItems:"1000" doc:"Tasks of the same tenant that must have succeeded before it starts; the first task of an array stands for all of it"`
	AfterAny   []uint64          `json:"after_any,omitempty" maxItems:"1000" doc:"As after, but however they ended"`
	Hold       bool              `json:"hold,omitempty" doc:"Wait until it is released"`
	OnIdle     string            `json:"on_idle,omitempty" enum:"keep,share,park,stop" doc:"What to do when its GPUs are not used: nothing, let others of its tenant come to them, suspend it and lend them, or end it; the pool's rule for its class if left out"`
	OnResize   string            `json:"on_resize,omitempty" enum:"restart" doc:"It may be told by a signal to save its work and end, and is started again at another size or place. If left out, only what its process need not know is changed while it runs: a share of a GPU"`
	Signal     string            `json:"resize_signal,omitempty" enum:"TERM,INT,HUP,USR1,USR2" doc:"The signal that tells it so; TERM if left out" example:"USR1"`
	Min        string            `json:"min,omitempty" maxLength:"32" doc:"GPUs that each member can run with at the least, a count or a fraction of one; what it asks for if left out" example:"1"`
	Max        string            `json:"max,omitempty" maxLength:"32" doc:"GPUs that each member can make use of at the most, likewise" example:"8"`
	NoShare    bool              `json:"no_share,omitempty" doc:"It is never put beside others on a GPU, nor made smaller for them"`
	NoPreempt  bool              `json:"no_preempt,omitempty" doc:"It never has to yield to others; so it is never placed on GPUs that may be asked back"`
	Labels     map[string]string `json:"labels,omitempty" maxProperties:"32" doc:"For exemptions from what pools do with idle tasks, and for people"`
	Array      string            `json:"array,omitempty" maxLength:"64" doc:"One task for each index: FIRST-LAST, with :STEP and %LIMIT, how many may run at once" example:"0-99%10"`
}

// LeaseSpec asks for slices for an outside client to use.
type LeaseSpec struct {
	Name      string  `json:"name,omitempty" maxLength:"256" doc:"For people; need not be unique"`
	Tenant    string  `json:"tenant,omitempty" maxLength:"128" doc:"As for a task"`
	Pool      string  `json:"pool,omitempty" maxLength:"128" doc:"As for a task"`
	Priority  string  `json:"priority,omitempty" enum:"high,normal,low" doc:"As for a task"`
	Class     string  `json:"class,omitempty" enum:"training,inference,interactive" doc:"As for a task"`
	GPUs      string  `json:"gpus,omitempty" maxLength:"256" doc:"As for a task" example:"1/7"`
	GPUMemory string  `json:"gpu_memory,omitempty" maxLength:"32" doc:"As for a task"`
	Isolation string  `json:"isolation,omitempty" enum:"mig,shared,any" doc:"As for a task"`
	Members   int     `json:"members,omitempty" minimum:"0" maximum:"16384" doc:"As for a task"`
	CPUs      float64 `json:"cpus,omitempty" minimum:"0" doc:"As for a task"`
	Memory    string  `json:"memory,omitempty" maxLength:"32" doc:"As for a task"`
	TTL       string  `json:"ttl,omitempty" maxLength:"32" doc:"Longest wait in the queue, as for a task"`
	LeaseTTL  string  `json:"lease_ttl,omitempty" maxLength:"32" doc:"How long it is held unless renewed; 1m if left out" example:"1m"`

	NoShare bool              `json:"no_share,omitempty" doc:"As for a task"`
	Labels  map[string]string `json:"labels,omitempty" maxProperties:"32" doc:"As for a task"`
}

// Reason is a code for programs and a sentence for people.
type Reason struct {
	Code    string `json:"code" doc:"For programs" example:"waiting_for_gpus"`
	Message string `json:"message" doc:"For people, with the arithmetic"`
}

// Exit is how a member ended.
type Exit struct {
	Code   int    `json:"code" doc:"Of the program; 128 + the signal's number after a signal"`
	Signal string `json:"signal,omitempty" doc:"The signal that ended it" example:"SIGKILL"`
	OOM    bool   `json:"oom,omitempty" doc:"Killed for its memory limit"`
	Lost   string `json:"lost,omitempty" doc:"Why the true end is not known"`
}

// Slice is what a member holds of one GPU.
type Slice struct {
	GPU       int    `json:"gpu" doc:"Number of the GPU in this installation"`
	GPUID     string `json:"gpu_id" doc:"UUID of the GPU"`
	Mode      string `json:"mode" enum:"whole,mig,shared"`
	Profile   string `json:"profile,omitempty" doc:"MIG profile" example:"1g.10gb"`
	Start     int    `json:"start,omitempty" doc:"First memory unit of a MIG placement"`
	Units     int    `json:"units,omitempty" doc:"Memory units of a MIG placement"`
	Milli     int    `json:"milli" doc:"Thousandths of the GPU's compute"`
	MemoryMiB int64  `json:"memory_mib,omitempty" doc:"Memory, where known"`
	Device    string `json:"device,omitempty" doc:"As a program needs it in CUDA_VISIBLE_DEVICES; empty until it is made"`
	Text      string `json:"text" doc:"In words" example:"1g.10gb at 3 of GPU 2"`
	Use       *Use   `json:"use,omitempty" doc:"Newest sample; absent when not known"`
}

// Use is a sample of the real use of a slice.
type Use struct {
	Compute   float64 `json:"compute" doc:"Share of the slice's compute, 0 to 1; negative when not known"`
	MemoryMiB int64   `json:"memory_mib" doc:"Memory in use; negative when not known"`
	Processes int     `json:"processes" doc:"Processes on it; negative when not known"`
}

// Member is one member of a task and what it holds.
type Member struct {
	Member int     `json:"member"`
	Host   string  `json:"host"`
	Phase  string  `json:"phase" doc:"carving, ready, starting, running, stopping, ended, freeing or freed"`
	Slices []Slice `json:"slices" nullable:"false"`
	Exit   *Exit   `json:"exit,omitempty"`

	Enforcement string `json:"enforcement,omitempty" enum:"exclusive,hard,memory-capped,soft" doc:"As of the task"`
}

// Task is a task and where it stands.
type Task struct {
	ID        uint64     `json:"id"`
	Name      string     `json:"name,omitempty"`
	Tenant    string     `json:"tenant"`
	Pool      string     `json:"pool"`
	Priority  string     `json:"priority"`
	Class     string     `json:"class,omitempty"`
	Request   string     `json:"request" doc:"What each member needs, in words"`
	CPUs      float64    `json:"cpus,omitempty"`
	MemoryMiB int64      `json:"memory_mib,omitempty"`
	Command   []string   `json:"command,omitempty" doc:"Absent for a lease"`
	Image     string     `json:"image,omitempty" doc:"Of the container that it runs in; absent for a process"`
	Volumes   []Volume   `json:"volumes,omitempty"`
	Network   string     `json:"network,omitempty" doc:"As it was asked for"`
	State     string     `json:"state" enum:"queued,starting,running,yielding,parked,succeeded,failed,cancelled,expired"`
	Reason    Reason     `json:"reason"`
	Submitted time.Time  `json:"submitted"`
	Started   *time.Time `json:"started,omitempty" doc:"When it last began to run"`
	Ended     *time.Time `json:"ended,omitempty"`
	Epoch     uint32     `json:"epoch" doc:"Of its newest lease; 0 before the first"`
	Failures  int        `json:"failures,omitempty" doc:"Times that slices could not be made or the start failed"`
	Preempted int        `json:"preempted,omitempty" doc:"Times that it was sent back to the queue"`
	Drained   int        `json:"drained,omitempty" doc:"Attempts that ended because a GPU of it was drained or broke"`
	Faults    int        `json:"faults,omitempty" doc:"Faults of its program that the hardware reported"`
	LastFault *GPUFault  `json:"last_fault,omitempty"`
	Exit      *Exit      `json:"exit,omitempty" doc:"Of the member that decided the end"`
	Members   []Member   `json:"members,omitempty" doc:"While it holds something"`

	Enforcement string `json:"enforcement,omitempty" enum:"exclusive,hard,memory-capped,soft" doc:"What keeps it to its slices and others off them, the weakest of its members: whole GPUs, MIG, shares by MPS, shares by time slices; absent while it holds no GPU"`

	Array     uint64 `json:"array,omitempty" doc:"First task of its array; absent without one"`
	Index     *int   `json:"index,omitempty" doc:"In its array"`
	Size      int    `json:"size,omitempty" doc:"Tasks of its array, numbered from the first without a gap"`
	ArraySpec string `json:"array_spec,omitempty" doc:"Its array as it was submitted" example:"0-99%10"`

	Held       bool       `json:"held,omitempty" doc:"Waits until it is released"`
	After      []uint64   `json:"after,omitempty" doc:"Starts once these have succeeded"`
	AfterAny   []uint64   `json:"after_any,omitempty" doc:"Starts once these have ended"`
	MaxRuntime string     `json:"max_runtime,omitempty" doc:"Longest run, over all its attempts"`
	Estimate   string     `json:"estimate,omitempty" doc:"The user's own guess at how long it runs"`
	Checkpoint string     `json:"checkpoint_every,omitempty"`
	Deadline   *time.Time `json:"deadline,omitempty"`
	Forecast   *Forecast  `json:"forecast,omitempty" doc:"How long it would run, as said when it was submitted; absent where nothing is known"`

	WaitsUntil        *time.Time `json:"waits_until,omitempty" doc:"Expires then unless it has started"`
	RunsUntil         *time.Time `json:"runs_until,omitempty" doc:"Ended then unless it has ended: its longest run"`
	ExpectedStart     *time.Time `json:"expected_start,omitempty" doc:"Of a task that waits; absent when not known"`
	ExpectedStartLate *time.Time `json:"expected_start_late,omitempty" doc:"By then at the latest, if tasks run as long as those like them did; absent when not known"`

	OnIdle    string            `json:"on_idle,omitempty" doc:"What is done when its GPUs are not used; absent when its pool decides"`
	OnResize  string            `json:"on_resize,omitempty" doc:"How it takes another size; absent when only in place"`
	Signal    string            `json:"resize_signal,omitempty" doc:"That tells it to save its work; absent for TERM"`
	MinGPUs   float64           `json:"min_gpus,omitempty" doc:"That each member can run with; absent when it is what was asked for"`
	MaxGPUs   float64           `json:"max_gpus,omitempty" doc:"That each member can make use of, likewise"`
	NoShare   bool              `json:"no_share,omitempty"`
	NoPreempt bool              `json:"no_preempt,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Usage     *Judged           `json:"usage,omitempty" doc:"How it uses what it holds, as judged; absent when not known"`
	Resized   string            `json:"resized,omitempty" doc:"What each member asks for now, in words, when that is not what it was submitted with" example:"4 whole GPUs"`
	ResizedBy string            `json:"resized_by,omitempty" doc:"Who gave it that size; absent when its pool did"`
	Plan      *Plan             `json:"plan,omitempty" doc:"A move of it that was announced"`
}

// Forecast is how long a task runs, judged by tasks that ended.
type Forecast struct {
	P50     string `json:"p50" doc:"Half of such tasks are done by then" example:"40m"`
	P90     string `json:"p90" doc:"Nine of ten are" example:"2h"`
	Basis   string `json:"basis" doc:"What it rests on: task_model, task, tenant_request, tenant, everyone_request, everyone, estimate, as_long_again, none, or another word in a later version" example:"task"`
	Samples int    `json:"samples" doc:"Ended tasks that it rests on"`
}

// Reservation is GPUs that are kept for a waiting task.
type Reservation struct {
	At       *time.Time `json:"at,omitempty" doc:"When there are expected to be enough; absent when not known"`
	GPUs     []int      `json:"gpus" nullable:"false" doc:"Numbers of those kept"`
	Yielding int        `json:"yielding,omitempty" doc:"Tasks that were asked to yield for it"`
}

// Progress is how far an array is.
type Progress struct {
	Size      int `json:"size"`
	Waiting   int `json:"waiting"`
	Running   int `json:"running" doc:"Holding something"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed" doc:"Failed, cancelled or expired"`
}

// Terminal reports whether the task has ended.
func (t Task) Terminal() bool { return work.State(t.State).Terminal() }

// Explanation says why a task waits, where it sits, or how it ended.
type Explanation struct {
	Task    Task     `json:"task"`
	Code    string   `json:"code" doc:"For programs" example:"waiting_for_gpus"`
	Message string   `json:"message" doc:"For people, with the arithmetic"`
	Ahead   int      `json:"ahead" doc:"Tasks before it in line, while it is queued"`
	Detail  []string `json:"detail,omitempty" doc:"What it holds and since when, in sentences"`
	Sooner  []string `json:"sooner,omitempty" doc:"What would let it start sooner, in sentences"`
	RunLeft string   `json:"run_left,omitempty" doc:"Of its longest run"`

	Reservation *Reservation `json:"reservation,omitempty" doc:"What is kept for it"`
	Array       *Progress    `json:"array,omitempty" doc:"How far its array is"`
}

// Lease is a lease of an outside client.
type Lease struct {
	ID      uint64     `json:"id" doc:"The number of the task that holds it"`
	Name    string     `json:"name,omitempty"`
	Tenant  string     `json:"tenant"`
	Pool    string     `json:"pool"`
	Request string     `json:"request"`
	State   string     `json:"state" doc:"queued or starting before it is held, running while it is" enum:"queued,starting,running,yielding,parked,succeeded,failed,cancelled,expired"`
	Reason  Reason     `json:"reason"`
	Epoch   uint32     `json:"epoch" doc:"Name it to renew or release; another epoch means that what was held was taken back"`
	Expires *time.Time `json:"expires,omitempty" doc:"Taken back then unless renewed"`
	Devices []string   `json:"devices" nullable:"false" doc:"Of all members, as a program needs them in CUDA_VISIBLE_DEVICES"`
	Members []Member   `json:"members,omitempty"`

	Enforcement string `json:"enforcement,omitempty" enum:"exclusive,hard,memory-capped,soft" doc:"What keeps it to its slices and others off them: whole GPUs, MIG, shares by MPS, shares by time slices; absent while it holds no GPU"`
	Recalled    bool   `json:"recalled,omitempty" doc:"It cannot be renewed, as a GPU of it is being drained: give it back"`
}

// Host is a machine.
type Host struct {
	Name          string            `json:"name"`
	Driver        string            `json:"driver" doc:"Which driver speaks for it"`
	Pool          string            `json:"pool"`
	Up            bool              `json:"up"`
	CPUs          float64           `json:"cpus"`
	FreeCPUs      float64           `json:"free_cpus"`
	MemoryMiB     int64             `json:"memory_mib"`
	FreeMemoryMiB int64             `json:"free_memory_mib"`
	GPUs          []int             `json:"gpus" nullable:"false" doc:"Numbers of its GPUs"`
	FreeGPUs      int               `json:"free_gpus" doc:"With nothing on them"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// GPU is one device and what stands on it. A tenant sees of others' slices only
// that they are taken.
type GPU struct {
	GPU       int       `json:"gpu" doc:"Number in this installation"`
	ID        string    `json:"id" doc:"UUID"`
	Model     string    `json:"model" example:"H100-80GB"`
	Host      string    `json:"host"`
	Pool      string    `json:"pool"`
	Health    string    `json:"health" enum:"ok,suspect,cordoned,draining,drained,broken" doc:"Only one that is ok gets new work; what runs on one that is draining is moved away"`
	Why       string    `json:"why,omitempty" doc:"Of a health other than ok"`
	Mode      string    `json:"mode" enum:"free,whole,mig,shared"`
	Units     int       `json:"units" doc:"Memory units of the board; 0 without MIG"`
	Taken     []int     `json:"taken" nullable:"false" doc:"Memory units that are taken"`
	Milli     int       `json:"milli" doc:"Thousandths of its compute that are held"`
	MemoryMiB int64     `json:"memory_mib"`
	Holders   []Holding `json:"holders" nullable:"false"`

	HealthBy    string     `json:"health_by,omitempty" doc:"Who says so: an operator, or the driver; absent when gpupool itself does, or when it is ok" example:"driver nvidia"`
	HealthSince *time.Time `json:"health_since,omitempty"`
	Operator    *Verdict   `json:"operator,omitempty" doc:"What operators want done with it, which only they take back"`
	Driver      *Verdict   `json:"driver,omitempty" doc:"What its driver wants done with it, which only the driver takes back"`
	Mend        string     `json:"mend,omitempty" doc:"The command that mends it once nothing is on it; then it is in use again by itself" example:"nvidia-smi --gpu-reset -i 3"`
	Faults      int        `json:"faults,omitempty" doc:"Faults of programs on it that the hardware reported"`
	LastFault   *GPUFault  `json:"last_fault,omitempty"`
}

// Verdict is what someone wants done with a GPU that ails.
type Verdict struct {
	Do  string    `json:"do" enum:"cordon,drain,broken"`
	Why string    `json:"why,omitempty"`
	By  string    `json:"by"`
	At  time.Time `json:"at"`
}

// GPUFault is a fault of a program that the hardware reported.
type GPUFault struct {
	At   time.Time `json:"at"`
	GPU  int       `json:"gpu"`
	Task uint64    `json:"task,omitempty" doc:"Absent when it is not known, or belongs to another tenant"`
	Code string    `json:"code" example:"XID 31"`
	What string    `json:"what,omitempty" example:"GPU memory page fault"`
}

// GPUReason says why a GPU is cordoned or drained.
type GPUReason struct {
	Reason string `json:"reason,omitempty" maxLength:"512" doc:"For people: it stands beside the GPU, and in what its tasks are told" example:"new cable"`
}

// Holding is a slice on a GPU and who holds it.
type Holding struct {
	Task   uint64 `json:"task,omitempty" doc:"Absent when it belongs to another tenant"`
	Tenant string `json:"tenant,omitempty" doc:"Absent when it belongs to another tenant"`
	Name   string `json:"name,omitempty"`
	Phase  string `json:"phase"`
	Slice  Slice  `json:"slice"`
}

// Pool is a named group of hosts with one policy.
type Pool struct {
	Name     string  `json:"name"`
	Mode     string  `json:"mode" enum:"static,shadow,dynamic" doc:"In force"`
	Hosts    int     `json:"hosts"`
	GPUs     int     `json:"gpus"`
	FreeGPUs int     `json:"free_gpus" doc:"With nothing on them, and usable"`
	HeldGPUs float64 `json:"held_gpus" doc:"Sum of the slices held, in GPUs"`
	Unusable int     `json:"unusable" doc:"GPUs that are cordoned, drained, broken, suspect or on a host that is away"`
	Cordoned int     `json:"cordoned,omitempty" doc:"Of these, GPUs that are cordoned, being drained or drained"`
	Waiting  int     `json:"waiting" doc:"Tasks in line"`
	Running  int     `json:"running" doc:"Tasks that hold something"`
	Idle     int     `json:"idle" doc:"Running tasks whose GPUs are not used"`
	Parked   int     `json:"parked" doc:"Suspended tasks whose GPUs are lent"`
	TTL      string  `json:"ttl,omitempty" doc:"Longest wait in line of tasks that name none"`
	Warning  string  `json:"warning,omitempty" doc:"What is not as recommended"`

	Capacity   int      `json:"capacity" doc:"Tasks that may wait; 0 = no bound"`
	NormalUpTo *int     `json:"normal_up_to,omitempty" doc:"Waiting tasks up to which normal priority is accepted; high is up to the capacity. Absent = no bound"`
	LowUpTo    *int     `json:"low_up_to,omitempty" doc:"Waiting tasks up to which low priority is accepted. Absent = no bound"`
	BorrowFrom []string `json:"borrow_from,omitempty" doc:"Pools whose idle GPUs it may use"`
	Reserve    float64  `json:"reserve_gpus,omitempty" doc:"GPUs that training leaves to inference and interactive work"`
	LendGPUs   float64  `json:"lend_gpus,omitempty" doc:"GPUs that tasks of other pools hold at most; 0 = all that idle"`
	Lent       []Loan   `json:"lent,omitempty" doc:"What it has lent to others"`

	TenantModes map[string]string `json:"tenant_modes,omitempty" doc:"Tenants whom it serves in a mode of their own"`
	ModeSince   *time.Time        `json:"mode_since,omitempty" doc:"When its mode was last set beside its settings"`
	ModeBy      string            `json:"mode_by,omitempty" doc:"guard: it fell back by itself; rollout; or who set it. For admins"`
	ModeWhy     string            `json:"mode_why,omitempty" doc:"For admins"`
	ModeLog     []string          `json:"mode_log,omitempty" doc:"What led to it, if it fell back. For admins"`
	Fallbacks   int               `json:"fallbacks" doc:"How often it fell back to static by itself"`
	Fallback    string            `json:"fallback,omitempty" doc:"Why it is static, if it fell back and nobody has set a mode since"`
}

// Loan is what a pool has lent to another, and how that came back.
type Loan struct {
	Borrower string  `json:"borrower" doc:"The pool whose tasks are guests"`
	GPUs     float64 `json:"gpus" doc:"Held by them now"`
	GPUHours float64 `json:"gpu_hours" doc:"Lent so far"`
	Loans    int     `json:"loans" doc:"How often something was lent"`
	Called   int     `json:"called" doc:"How often it was asked back"`
	LongestS float64 `json:"longest_s" doc:"The longest that it took until it was free, in seconds"`
	MeanS    float64 `json:"mean_s" doc:"How long that took on average"`
}

// PoolMode is the mode that a pool shall have.
type PoolMode struct {
	Mode string `json:"mode" enum:"static,shadow,dynamic" doc:"static: whole GPUs, exclusive. shadow: static, and it says what dynamic would do. dynamic: slices and shares, and what idles is taken back"`
}

// TenantSpec is what an admin sets of a tenant.
type TenantSpec struct {
	LimitGPUs  float64 `json:"limit_gpus,omitempty" minimum:"0" doc:"GPUs held at once at most; 0 = no limit"`
	Guarantee  float64 `json:"guarantee_gpus,omitempty" minimum:"0" doc:"GPUs it gets whenever it asks for them; what it leaves others may borrow"`
	MaxWaiting int     `json:"max_waiting,omitempty" minimum:"0" doc:"Tasks that wait at once at most; 0 = no limit"`
	MaxRunning int     `json:"max_running,omitempty" minimum:"0" doc:"Tasks that hold something at once at most; 0 = no limit"`
	Weight     float64 `json:"weight,omitempty" minimum:"0" doc:"Share in fair sharing; 1 if left out"`
}

// Tenant is who pays.
type Tenant struct {
	Name       string  `json:"name"`
	LimitGPUs  float64 `json:"limit_gpus" doc:"0 = no limit"`
	Guarantee  float64 `json:"guarantee_gpus" doc:"GPUs it gets whenever it asks for them"`
	MaxWaiting int     `json:"max_waiting" doc:"0 = no limit"`
	MaxRunning int     `json:"max_running" doc:"0 = no limit"`
	Weight     float64 `json:"weight"`
	Tokens     int     `json:"tokens" doc:"How many tokens it has"`
	HeldGPUs   float64 `json:"held_gpus"`
	Waiting    int     `json:"waiting"`
	Running    int     `json:"running" doc:"Tasks that hold something"`
}

// Token is a new token. It is shown once; only its hash is kept.
type Token struct {
	Tenant string `json:"tenant"`
	Token  string `json:"token"`
}

// Event is a fact as the event stream shows it.
type Event struct {
	Seq    uint64    `json:"seq" doc:"Number of the fact; give it as Last-Event-ID to go on after it"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind" example:"task.state"`
	Task   uint64    `json:"task,omitempty"`
	Tenant string    `json:"tenant,omitempty"`
	Fact   any       `json:"fact" doc:"The fact itself; its shape depends on the kind"`
}

// Self says who a token belongs to, and what the server is.
type Self struct {
	Role     string `json:"role" enum:"viewer,tenant,operator,admin"`
	Tenant   string `json:"tenant,omitempty" doc:"Absent for who sees every tenant"`
	ReadOnly bool   `json:"read_only,omitempty" doc:"It may read as its role does, and write nothing"`
	ID       string `json:"id,omitempty" doc:"Of the token, the subject at the OIDC issuer, or the subject of the certificate"`
	Name     string `json:"name,omitempty" doc:"Of the token or the person"`
	How      string `json:"how,omitempty" doc:"How it was shown: token, oidc or certificate"`

	Expires  *time.Time `json:"expires,omitempty" doc:"When it is worthless"`
	Version  string     `json:"version"`
	Hardware string     `json:"hardware,omitempty" doc:"A remark on what the GPUs are, such as that they are not real"`
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Give it as after to get the next page; absent on the last"`
}

// Problem is a refusal as RFC 9457 wants it, with a code for programs.
type Problem struct {
	Title  string  `json:"title" doc:"Of the status" example:"Conflict"`
	Status int     `json:"status" doc:"HTTP status" example:"409"`
	Code   string  `json:"code" doc:"For programs: invalid, impossible, unauthorized, forbidden, over_limit, not_found, conflict, stale_epoch, queue_full, rate_limited, unavailable, internal, or another word in a later version" example:"conflict"`
	Detail string  `json:"detail" doc:"For people: what was expected, what came, what to do"`
	Errors []Fault `json:"errors,omitempty" nullable:"false" doc:"Each fault of an input, and where it is"`
	Retry  int     `json:"retry_after_s,omitempty" doc:"Seconds after which trying again may help, as in Retry-After; absent when waiting does not help"`
}

// Fault is one thing that is wrong with an input.
type Fault struct {
	Where   string `json:"where" example:"body.members"`
	Message string `json:"message"`
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status of the answer.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of a problem for an answer that would have been of type ct.
func (p *Problem) ContentType(ct string) string {
	if ct == "application/json" {
		return "application/problem+json"
	}
	return ct
}

// Renewal names the lease that is to be kept.
type Renewal struct {
	Epoch uint32 `json:"epoch" minimum:"1" doc:"As the lease had it when it became held"`
}

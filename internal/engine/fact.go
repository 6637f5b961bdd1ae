package engine

import (
	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/forecast"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Fact is something that was decided. Facts are the only thing that changes the
// engine's state, so that replaying them gives the same state.
type Fact interface{ Kind() string }

type (
	// PoolSet states a pool as it is from now on.
	PoolSet struct {
		Pool work.Pool `json:"pool"`
	}
	// TenantSet states a tenant as it is from now on.
	TenantSet struct {
		Tenant work.Tenant `json:"tenant"`
	}
	// TenantRemoved states that a tenant is gone.
	TenantRemoved struct {
		Name string `json:"name"`
	}
	// ModelLearned states a GPU model as a driver reported it.
	ModelLearned struct {
		Model gpu.Model `json:"model"`
	}
	// HostJoined states a new host; it gets the next numbers for itself and its GPUs.
	HostJoined struct {
		Host gpu.HostInfo `json:"host"`
		Pool string       `json:"pool"`
	}
	// HostChanged states whether a host can be used.
	HostChanged struct {
		Host   int         `json:"host"`
		Up     bool        `json:"up"`
		Reason work.Reason `json:"reason"`
	}
	// HostMoved states that a host belongs to another pool.
	HostMoved struct {
		Host int    `json:"host"`
		Pool string `json:"pool"`
	}
	// GPUChanged states the health of a GPU.
	GPUChanged struct {
		GPU     int        `json:"gpu"`
		Health  gpu.Health `json:"health"`
		Strikes int        `json:"strikes,omitempty"` // failed carves in a row
		Until   work.Time  `json:"until,omitempty"`   // doubted until then, whatever else is said
		Why     string     `json:"why,omitempty"`     // of its health

		Doubt    string    `json:"doubt,omitempty"` // why it is doubted, where something else is the matter too
		Operator *Said     `json:"operator,omitempty"`
		Driver   *Said     `json:"driver,omitempty"`
		Since    work.Time `json:"since,omitempty"` // of its health; 0 = not known
	}
	// HostShares states how shares are made on a host from now on, as gpu.HostInfo.Sharing.
	HostShares struct {
		Host    int    `json:"host"`
		Sharing string `json:"sharing,omitempty"`
	}
	// Faulted states a fault of a program that the hardware reported.
	Faulted struct {
		GPU    int          `json:"gpu"`
		At     work.Time    `json:"at"` // with the GPU its name: it is counted once
		Code   string       `json:"code"`
		What   string       `json:"what,omitempty"`
		Owner  work.Owner   `json:"owner,omitzero"`   // whose slice was hit; zero = not known
		Reason *work.Reason `json:"reason,omitempty"` // why the task ended, if it had ended already
	}
	// Recalled states that the lease of an outside client cannot be renewed, or can be again.
	Recalled struct {
		Task   work.TaskID `json:"task"`
		Epoch  uint32      `json:"epoch"`
		Off    bool        `json:"off,omitempty"`
		Reason work.Reason `json:"reason"`
	}
	// Submitted states that a task was accepted.
	Submitted struct {
		Task  work.TaskID       `json:"task"`
		Spec  *work.Spec        `json:"spec"` // read only: the task keeps it
		Said  forecast.Forecast `json:"said"`
		Array work.TaskID       `json:"array,omitempty"` // the first task of its array
		Index int               `json:"index,omitempty"`
	}
	// Held states that a waiting task is kept back, or is not any more.
	Held struct {
		Task work.TaskID `json:"task"`
		On   bool        `json:"on"`
		By   string      `json:"by"`
	}
	// Checkpointed states that a running task has saved its work.
	Checkpointed struct {
		Task work.TaskID `json:"task"`
	}
	// Reserved states which GPUs are kept for a waiting task, until it is placed. Without
	// parts nothing is kept for it any more.
	Reserved struct {
		Task    work.TaskID   `json:"task"`
		At      work.Time     `json:"at,omitempty"` // when they are expected to be free; 0 = not known
		Parts   []work.Part   `json:"parts,omitempty"`
		Victims []work.TaskID `json:"victims,omitempty"` // who yield for it
		Moving  bool          `json:"moving,omitempty"`  // and have another place to go to
	}
	// AskedForMore states that a pool asked for more GPUs from outside.
	AskedForMore struct {
		Pool    string  `json:"pool"`
		Waiting int     `json:"waiting"`
		GPUs    float64 `json:"gpus"`
	}
	// Placed states that a task holds parts, at a new epoch.
	Placed struct {
		Task  work.TaskID `json:"task"`
		Epoch uint32      `json:"epoch"`
		Parts []work.Part `json:"parts"`
		Runs  uint32      `json:"runs,omitempty"` // the epoch at which its processes were started, when they were suspended since
	}
	// Carved states that the slices of a part exist.
	Carved struct {
		Owner   work.Owner `json:"owner"`
		Devices []string   `json:"devices"`
	}
	// Started states that a member runs.
	Started struct {
		Owner work.Owner `json:"owner"`
	}
	// Exited states how a member ended.
	Exited struct {
		Owner work.Owner `json:"owner"`
		Exit  work.Exit  `json:"exit"`
	}
	// Became states that a task took an arrow of the table of states.
	Became struct {
		Task   work.TaskID `json:"task"`
		State  work.State  `json:"state"`
		Reason work.Reason `json:"reason"`
	}
	// Closing states that a lease is being taken apart, and what becomes of the
	// task when none of its members runs any more.
	Closing struct {
		Task   work.TaskID `json:"task"`
		Epoch  uint32      `json:"epoch"`
		Then   work.State  `json:"then"`
		Reason work.Reason `json:"reason"`
	}
	// FreeRetry states that freeing a part failed and when it is tried again.
	FreeRetry struct {
		Owner work.Owner `json:"owner"`
		Tries int        `json:"tries"`
		Until work.Time  `json:"until"`
		Why   string     `json:"why"`
	}
	// Freed states that nothing stands for an owner any more.
	Freed struct {
		Owner work.Owner `json:"owner"`
	}
	// Renewed states until when the lease of an outside client holds.
	Renewed struct {
		Task    work.TaskID `json:"task"`
		Epoch   uint32      `json:"epoch"`
		Expires work.Time   `json:"expires"`
	}
	// Judged states how a task uses what it holds.
	Judged struct {
		Task work.TaskID `json:"task"`
		Use  elastic.Use `json:"use"`
	}
	// Suspending states that a member is being suspended, and why.
	Suspending struct {
		Owner  work.Owner  `json:"owner"`
		Reason work.Reason `json:"reason"`
	}
	// Suspended states that nothing of a member runs: its slices are freed, and what it
	// had on them is in main memory.
	Suspended struct {
		Owner  work.Owner `json:"owner"`
		MemMiB int64      `json:"memory_mib,omitempty"`
	}
	// Woken states that a suspended task wants to go on.
	Woken struct {
		Task work.TaskID `json:"task"`
		By   string      `json:"by"`
	}
	// Resuming states that a member is to go on without having left its slices.
	Resuming struct {
		Owner work.Owner `json:"owner"`
	}
	// Resumed states that a suspended member runs again.
	Resumed struct {
		Owner work.Owner `json:"owner"`
	}
	// MoveFailed states that a move of a running task went wrong, and was undone.
	MoveFailed struct {
		Task work.TaskID   `json:"task"`
		Move work.MoveKind `json:"move"`
		Why  string        `json:"why"`
	}
	// Sized states what a task asks for from now on; nil is as it was submitted.
	Sized struct {
		Task    work.TaskID   `json:"task"`
		Request *work.Request `json:"request,omitempty"`
		By      string        `json:"by,omitempty"` // a person, whose word stands until he takes it back
	}
	// Planned announces a move that takes something from a task, and when it is made if
	// it is still of use then.
	Planned struct {
		Task work.TaskID `json:"task"`
		Plan Plan        `json:"plan"`
	}
	// Dropped states that an announced move is not made.
	Dropped struct {
		Task work.TaskID `json:"task"`
		Why  string      `json:"why"`
	}
	// Resizing states that a part is to have other slices of the same GPUs, and why.
	Resizing struct {
		Owner  work.Owner   `json:"owner"`
		Slices []work.Slice `json:"slices"`
		Reason work.Reason  `json:"reason"`
	}
	// Resized states that it has them.
	Resized struct {
		Owner work.Owner `json:"owner"`
	}
	// Parted states that two kinds of work slow each other down and do not share a GPU
	// until then.
	Parted struct {
		Pair  [2]string `json:"pair"`
		Until work.Time `json:"until"`
		Why   string    `json:"why"`
	}
	// ModeSet states the mode of a pool, beside its settings, or of one tenant in it; an
	// empty mode is none of its own any more.
	ModeSet struct {
		Pool   string        `json:"pool"`
		Tenant string        `json:"tenant,omitempty"`
		Mode   work.PoolMode `json:"mode"`
		By     string        `json:"by"`
		Reason string        `json:"reason,omitempty"`
		Log    []string      `json:"log,omitempty"` // what led to it
	}
	// Shadowed states what would be done with a task of a pool in shadow mode.
	Shadowed struct {
		Task   work.TaskID   `json:"task"`
		Move   work.MoveKind `json:"move"`
		Reason work.Reason   `json:"reason"`
	}
	// Forgotten states that ended tasks are no longer kept.
	Forgotten struct {
		Tasks []work.TaskID `json:"tasks"`
	}
)

// Kind names the fact in the journal and in the event stream.
func (PoolSet) Kind() string       { return "pool.set" }
func (TenantSet) Kind() string     { return "tenant.set" }      // see PoolSet.Kind
func (TenantRemoved) Kind() string { return "tenant.removed" }  // see PoolSet.Kind
func (ModelLearned) Kind() string  { return "model.learned" }   // see PoolSet.Kind
func (HostJoined) Kind() string    { return "host.joined" }     // see PoolSet.Kind
func (HostChanged) Kind() string   { return "host.changed" }    // see PoolSet.Kind
func (HostMoved) Kind() string     { return "host.moved" }      // see PoolSet.Kind
func (GPUChanged) Kind() string    { return "gpu.changed" }     // see PoolSet.Kind
func (HostShares) Kind() string    { return "host.shares" }     // see PoolSet.Kind
func (Faulted) Kind() string       { return "gpu.faulted" }     // see PoolSet.Kind
func (Recalled) Kind() string      { return "lease.recalled" }  // see PoolSet.Kind
func (Submitted) Kind() string     { return "task.submitted" }  // see PoolSet.Kind
func (Held) Kind() string          { return "task.held" }       // see PoolSet.Kind
func (Checkpointed) Kind() string  { return "task.checkpoint" } // see PoolSet.Kind
func (Reserved) Kind() string      { return "task.reserved" }   // see PoolSet.Kind
func (AskedForMore) Kind() string  { return "pool.asked" }      // see PoolSet.Kind
func (Placed) Kind() string        { return "task.placed" }     // see PoolSet.Kind
func (Carved) Kind() string        { return "part.carved" }     // see PoolSet.Kind
func (Started) Kind() string       { return "member.started" }  // see PoolSet.Kind
func (Exited) Kind() string        { return "member.exited" }   // see PoolSet.Kind
func (Became) Kind() string        { return "task.state" }      // see PoolSet.Kind
func (Closing) Kind() string       { return "lease.closing" }   // see PoolSet.Kind
func (FreeRetry) Kind() string     { return "part.freeretry" }  // see PoolSet.Kind
func (Freed) Kind() string         { return "part.freed" }      // see PoolSet.Kind
func (Renewed) Kind() string       { return "lease.renewed" }   // see PoolSet.Kind
func (Judged) Kind() string        { return "task.use" }        // see PoolSet.Kind
func (Suspending) Kind() string    { return "task.suspending" } // see PoolSet.Kind
func (Suspended) Kind() string     { return "task.suspended" }  // see PoolSet.Kind
func (Woken) Kind() string         { return "task.woken" }      // see PoolSet.Kind
func (Resuming) Kind() string      { return "task.resuming" }   // see PoolSet.Kind
func (Resumed) Kind() string       { return "task.resumed" }    // see PoolSet.Kind
func (MoveFailed) Kind() string    { return "task.movefailed" } // see PoolSet.Kind
func (Sized) Kind() string         { return "task.sized" }      // see PoolSet.Kind
func (Planned) Kind() string       { return "task.planned" }    // see PoolSet.Kind
func (Dropped) Kind() string       { return "task.dropped" }    // see PoolSet.Kind
func (Resizing) Kind() string      { return "part.resizing" }   // see PoolSet.Kind
func (Resized) Kind() string       { return "part.resized" }    // see PoolSet.Kind
func (Parted) Kind() string        { return "pair.parted" }     // see PoolSet.Kind
func (ModeSet) Kind() string       { return "pool.mode" }       // see PoolSet.Kind
func (Shadowed) Kind() string      { return "task.shadow" }     // see PoolSet.Kind
func (Forgotten) Kind() string     { return "task.forgotten" }  // see PoolSet.Kind

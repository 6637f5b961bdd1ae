package nvidia

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// The operations of the helper: each is one step on the hardware, or one look at it.
const (
	opHello     = "hello"      // initialise; what driver there is
	opCount     = "count"      // how many GPUs there are
	opDescribe  = "describe"   // the GPU of an index, what does not change
	opLook      = "look"       // one GPU, what does
	opProfiles  = "profiles"   // one GPU's MIG geometry
	opSetMIG    = "set_mig"    // On
	opCreateGI  = "create_gi"  // Profile, Start, Size → GI
	opCreateCI  = "create_ci"  // GI → CI, UUID; it spans the instance
	opDestroyCI = "destroy_ci" // GI, CI
	opDestroyGI = "destroy_gi" // GI
	opUse       = "use"        // GIs → how busy they are; none: the GPU itself
	opEvents    = "events"     // what the driver reported since the last time
)

// mutates says whether an operation may have happened although its answer was lost.
func mutates(op string) bool {
	switch op {
	case opSetMIG, opCreateGI, opCreateCI, opDestroyCI, opDestroyGI:
		return true
	}
	return false
}

// request is what the helper is asked. Which fields count depends on Op.
type request struct {
	ID      uint64 `json:"id"`
	Op      string `json:"op"`
	Index   int    `json:"index,omitempty"`
	GPU     string `json:"gpu,omitempty"` // UUID
	On      bool   `json:"on,omitempty"`
	Profile int    `json:"profile,omitempty"` // NVML's profile id
	Start   int    `json:"start,omitempty"`
	Size    int    `json:"size,omitempty"`
	GI      int    `json:"gi,omitempty"`
	CI      int    `json:"ci,omitempty"`
	GIs     []int  `json:"gis,omitempty"`
}

// response is what it answers: a fault, or the fields of the operation.
type response struct {
	ID       uint64        `json:"id"`
	Fault    *fault        `json:"fault,omitempty"`
	Hello    *hello        `json:"hello,omitempty"`
	Count    int           `json:"count,omitempty"`
	GPU      *listed       `json:"gpu,omitempty"`
	Look     *look         `json:"look,omitempty"`
	Profiles []profileInfo `json:"profiles,omitempty"`
	GI       int           `json:"gi,omitempty"`
	CI       int           `json:"ci,omitempty"`
	UUID     string        `json:"uuid,omitempty"`
	Use      []use         `json:"use,omitempty"`
	Events   []event       `json:"events,omitempty"`
}

// hello says what there is.
type hello struct {
	Driver string `json:"driver"` // version
	NVML   string `json:"nvml"`
}

// listed is a GPU as far as it never changes while the driver is loaded.
type listed struct {
	Index     int    `json:"index"`
	UUID      string `json:"uuid"`
	Name      string `json:"name"`
	PCI       string `json:"pci"`
	Minor     int    `json:"minor"` // of /dev/nvidiaN; -1 = not known
	Arch      string `json:"arch"`
	MemoryMiB int64  `json:"memory_mib"`
	SMs       int    `json:"sms"` // 0 = not known
	HasMIG    bool   `json:"has_mig"`
}

// look is what changes on one GPU. Numbers are -1 where the driver does not say.
type look struct {
	Minor      int        `json:"minor_now"`   // a change of MIG mode may give it another
	MIG        bool       `json:"mig"`         // in force
	MIGPending bool       `json:"mig_pending"` // after the next reset
	GIs        []instance `json:"gis,omitempty"`
	Procs      []process  `json:"procs,omitempty"` // that use the GPU, outside instances
	UsedMiB    int64      `json:"used_mib"`

	ECC         int64  `json:"ecc"` // uncorrected errors since the driver was loaded
	RemapWaits  bool   `json:"remap_waits,omitempty"`
	RemapFailed bool   `json:"remap_failed,omitempty"`
	Recovery    int    `json:"recovery"` // what the driver wants done: field 230
	Clocks      uint64 `json:"clocks"`   // why clocks are held down: bits
}

// instance is a GPU instance with its compute instances.
type instance struct {
	ID      int       `json:"id"`
	Profile int       `json:"profile"`
	Start   int       `json:"start"`
	Size    int       `json:"size"`
	CIs     []compute `json:"cis,omitempty"`
	Procs   []process `json:"procs,omitempty"`
	UsedMiB int64     `json:"used_mib"`
}

// compute is a compute instance and the name that a program knows it by.
type compute struct {
	ID   int    `json:"id"`
	UUID string `json:"uuid,omitempty"`
}

// process uses a GPU.
type process struct {
	PID     int   `json:"pid"`
	UsedMiB int64 `json:"used_mib"` // -1 = not known
}

// profileInfo is one MIG profile as the driver lists it.
type profileInfo struct {
	Name      string  `json:"name,omitempty"` // "" from an older driver
	ID        int     `json:"id"`
	Compute   int     `json:"compute"`
	Max       int     `json:"max"`
	SMs       int     `json:"sms"`
	MemoryMiB int64   `json:"memory_mib"`
	Places    []place `json:"places,omitempty"` // none: MIG mode is off, where the driver does not say
	Attr      string  `json:"attr,omitempty"`
}

// place is where an instance of a profile may stand.
type place struct {
	Start int `json:"start"`
	Size  int `json:"size"`
}

// use is how busy an instance is, or the GPU itself (GI -1), 0 to 1; -1 = not known (yet).
type use struct {
	GI      int     `json:"gi"`
	Compute float64 `json:"compute"`
}

// everywhere is the id of an instance where an event hit the whole GPU.
const everywhere = -1

// event is an XID.
type event struct {
	GPU string `json:"gpu"` // UUID; "" = not known
	XID int    `json:"xid"`
	GI  int    `json:"gi"` // everywhere: the whole GPU
}

// fault is an NVML call that was refused.
type fault struct {
	Call string `json:"call"`
	Code int    `json:"code"` // nvmlReturn_t
	Text string `json:"text"`
}

func (f *fault) Error() string { return fmt.Sprintf("%s: %s (NVML error %d)", f.Call, f.Text, f.Code) }

// NVML's return codes, as far as they decide something.
const (
	nvmlInvalidArgument  = 2
	nvmlNotSupported     = 3
	nvmlNoPermission     = 4
	nvmlNotFound         = 6
	nvmlDriverNotLoaded  = 9
	nvmlLibraryNotFound  = 12
	nvmlFunctionNotFound = 13
	nvmlGPULost          = 15
	nvmlResetRequired    = 16
	nvmlInUse            = 19
	nvmlNoResources      = 23
)

// maxFrame bounds a message: far above what 64 GPUs can say.
const maxFrame = 8 << 20

// writeFrame sends a value: its length in four bytes, then itself as JSON.
func writeFrame(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("a message of %d bytes is longer than the %d that are allowed", len(b), maxFrame)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

// readFrame receives what writeFrame sent. io.EOF is the end between two messages.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("a message of %d bytes was announced: expected at most %d", n, maxFrame)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("a message ended early: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("a message is not understood: %w", err)
	}
	return nil
}

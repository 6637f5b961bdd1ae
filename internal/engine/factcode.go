package engine

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gpupool/gpupool/internal/work"
)

// record is a fact as it is stored.
type record struct {
	At   work.Time       `json:"at"`
	Kind string          `json:"k"`
	Fact json.RawMessage `json:"f"`
}

// Encode writes a fact for the journal.
func Encode(at work.Time, f Fact) ([]byte, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", f.Kind(), err)
	}
	return json.Marshal(record{at, f.Kind(), raw})
}

// Decode reads what Encode wrote. An unknown kind or field is an error: the
// journal was written by a newer gpupool, or is damaged.
func Decode(b []byte) (work.Time, Fact, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return 0, nil, fmt.Errorf("fact is not readable: %w", err)
	}
	read, ok := decoders[r.Kind]
	if !ok {
		return 0, nil, fmt.Errorf("fact of kind %q is not known to this version of gpupool: use the version that wrote the journal, or a newer one", r.Kind)
	}
	f, err := read(r.Fact)
	if err != nil {
		return 0, nil, fmt.Errorf("fact %s is not readable: %w", r.Kind, err)
	}
	if m, ok := f.(ModelLearned); ok { // the size of its tables follows from it
		if err := m.Model.Validate(); err != nil {
			return 0, nil, fmt.Errorf("fact %s is not usable: %w", r.Kind, err)
		}
	}
	return r.At, f, nil
}

func decode[F Fact](raw json.RawMessage) (Fact, error) {
	var f F
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	return f, err
}

var decoders = map[string]func(json.RawMessage) (Fact, error){
	PoolSet{}.Kind():       decode[PoolSet],
	TenantSet{}.Kind():     decode[TenantSet],
	TenantRemoved{}.Kind(): decode[TenantRemoved],
	TokenSet{}.Kind():      decode[TokenSet],
	TokenRemoved{}.Kind():  decode[TokenRemoved],
	ModelLearned{}.Kind():  decode[ModelLearned],
	HostJoined{}.Kind():    decode[HostJoined],
	HostChanged{}.Kind():   decode[HostChanged],
	HostMoved{}.Kind():     decode[HostMoved],
	GPUChanged{}.Kind():    decode[GPUChanged],
	HostShares{}.Kind():    decode[HostShares],
	Faulted{}.Kind():       decode[Faulted],
	Recalled{}.Kind():      decode[Recalled],
	Submitted{}.Kind():     decode[Submitted],
	Held{}.Kind():          decode[Held],
	Checkpointed{}.Kind():  decode[Checkpointed],
	Reserved{}.Kind():      decode[Reserved],
	AskedForMore{}.Kind():  decode[AskedForMore],
	Placed{}.Kind():        decode[Placed],
	Carved{}.Kind():        decode[Carved],
	Started{}.Kind():       decode[Started],
	Exited{}.Kind():        decode[Exited],
	Became{}.Kind():        decode[Became],
	Closing{}.Kind():       decode[Closing],
	FreeRetry{}.Kind():     decode[FreeRetry],
	Freed{}.Kind():         decode[Freed],
	Renewed{}.Kind():       decode[Renewed],
	Judged{}.Kind():        decode[Judged],
	Suspending{}.Kind():    decode[Suspending],
	Suspended{}.Kind():     decode[Suspended],
	Woken{}.Kind():         decode[Woken],
	Resuming{}.Kind():      decode[Resuming],
	Resumed{}.Kind():       decode[Resumed],
	MoveFailed{}.Kind():    decode[MoveFailed],
	Sized{}.Kind():         decode[Sized],
	Planned{}.Kind():       decode[Planned],
	Dropped{}.Kind():       decode[Dropped],
	Resizing{}.Kind():      decode[Resizing],
	Resized{}.Kind():       decode[Resized],
	Parted{}.Kind():        decode[Parted],
	ModeSet{}.Kind():       decode[ModeSet],
	Shadowed{}.Kind():      decode[Shadowed],
	RolloutBegan{}.Kind():  decode[RolloutBegan],

	RolloutStepped{}.Kind(): decode[RolloutStepped],
	RolloutEnded{}.Kind():   decode[RolloutEnded],
	Forgotten{}.Kind():      decode[Forgotten],
}

// TaskOf is the task that a fact is about, or 0.
func TaskOf(f Fact) work.TaskID {
	switch f := f.(type) {
	case Submitted:
		return f.Task
	case Held:
		return f.Task
	case Checkpointed:
		return f.Task
	case Reserved:
		return f.Task
	case Placed:
		return f.Task
	case Carved:
		return f.Owner.Task
	case Started:
		return f.Owner.Task
	case Exited:
		return f.Owner.Task
	case Became:
		return f.Task
	case Closing:
		return f.Task
	case FreeRetry:
		return f.Owner.Task
	case Freed:
		return f.Owner.Task
	case Renewed:
		return f.Task
	case Recalled:
		return f.Task
	case Faulted:
		return f.Owner.Task
	case Judged:
		return f.Task
	case Suspending:
		return f.Owner.Task
	case Suspended:
		return f.Owner.Task
	case Woken:
		return f.Task
	case Resuming:
		return f.Owner.Task
	case Resumed:
		return f.Owner.Task
	case MoveFailed:
		return f.Task
	case Sized:
		return f.Task
	case Planned:
		return f.Task
	case Dropped:
		return f.Task
	case Resizing:
		return f.Owner.Task
	case Resized:
		return f.Owner.Task
	case Shadowed:
		return f.Task
	}
	return 0
}

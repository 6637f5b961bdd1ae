package nvidia

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// state is how far a part has come.
type state string

const (
	making   state = "making"   // written before the first step
	standing state = "standing" // written after the last one
	freeing  state = "freeing"  // written before the first step back
)

// record is a part as it is kept in a file. Together with what NVML shows it says what
// is to be done after a crash.
type record struct {
	Owner  work.Owner `json:"owner"`
	Tenant string     `json:"tenant"`
	Host   string     `json:"host"`
	Boot   string     `json:"boot"` // of the machine, when it was made: no instance outlives it
	State  state      `json:"state"`
	Why    string     `json:"why,omitempty"` // what is unclear about it: only Free may go on
	Slices []piece    `json:"slices"`
	// Before is which instances stood on each GPU before the first step: one that stands
	// at a place of this part and is not among them was made for it.
	Before map[string][]int `json:"before,omitempty"`
}

// piece is one slice, and the instance that it became.
type piece struct {
	driver.Slice
	ProfileID int    `json:"profile_id,omitempty"`
	Size      int    `json:"size,omitempty"`
	Made      bool   `json:"made,omitempty"` // the ids below are known
	GI        int    `json:"gi,omitempty"`
	CI        int    `json:"ci,omitempty"`
	UUID      string `json:"uuid,omitempty"`
}

func (p piece) mig() bool { return p.Mode == gpu.ModeMIG }

// device is what a program knows the slice by.
func (p piece) device() string {
	if p.mig() {
		return p.UUID
	}
	return p.GPUID
}

func (r *record) devices() []string {
	out := make([]string, len(r.Slices))
	for i, p := range r.Slices {
		out[i] = p.device()
	}
	return out
}

// on lists the GPUs of a record, each once, in order of their slices.
func (r *record) on() (out []string) {
	seen := map[string]bool{}
	for _, p := range r.Slices {
		if !seen[p.GPUID] {
			seen[p.GPUID] = true
			out = append(out, p.GPUID)
		}
	}
	return out
}

func (r *record) anyMIG() bool {
	for _, p := range r.Slices {
		if p.mig() {
			return true
		}
	}
	return false
}

// store keeps records and what is known of the machine in a folder.
type store struct{ dir string }

func openStore(dir string) (store, error) {
	s := store{dir}
	if err := os.MkdirAll(filepath.Join(dir, "parts"), 0o700); err != nil {
		return s, fmt.Errorf("the driver's folder cannot be made: %w", err)
	}
	return s, s.sweep()
}

// sweep removes what a crash left before its rename.
func (s store) sweep() error {
	for _, where := range []string{s.dir, filepath.Join(s.dir, "parts")} {
		names, err := filepath.Glob(filepath.Join(where, ".*.json-*"))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s store) part(o work.Owner) string {
	return filepath.Join(s.dir, "parts", o.String()+".json")
}

// put writes a record so that it is there after a crash, whole, or as it was before.
func (s store) put(r *record) error { return putFile(s.part(r.Owner), r) }

// drop removes a record.
func (s store) drop(o work.Owner) error {
	err := os.Remove(s.part(o))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Join(s.dir, "parts"))
	}
	return err
}

// records reads all of them. A file that cannot be read stops everything: what it
// stands for would be taken for someone else's.
func (s store) records() (map[work.Owner]*record, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "parts", "*.json"))
	if err != nil {
		return nil, err
	}
	out := map[work.Owner]*record{}
	for _, name := range names {
		r := &record{}
		if err := getFile(name, r); err != nil {
			return nil, fmt.Errorf("%w; it says which slices are a task's: mend it, or remove it once nvidia-smi shows that none of them stands", err)
		}
		out[r.Owner] = r
	}
	return out, nil
}

func getFile(name string, v any) error {
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return nil
}

func putFile(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed already when all went well
	if _, err = f.Write(append(b, '\n')); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		err = syncDir(filepath.Dir(name))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// freed remembers the owners that were freed last. A late command is late by seconds,
// so a bound is enough; a restart leaves no command behind.
type freed struct {
	is   map[work.Owner]bool
	ring []work.Owner
	next int
}

const freedKept = 1 << 14

func (f *freed) add(o work.Owner) {
	if f.is == nil {
		f.is, f.ring = map[work.Owner]bool{}, make([]work.Owner, 0, 64)
	}
	if f.is[o] {
		return
	}
	f.is[o] = true
	if len(f.ring) < freedKept {
		f.ring = append(f.ring, o)
		return
	}
	delete(f.is, f.ring[f.next])
	f.ring[f.next] = o
	f.next = (f.next + 1) % freedKept
}

package redis

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpupool/gpupool/internal/journal"
)

// seenFile is what a server keeps of the journal on its own disk: the newest record that
// it knows to be acknowledged. It is behind by a second at most, which only makes it
// notice less.
type seenFile struct {
	Acknowledged uint64 `json:"acknowledged"`
	Chain        string `json:"chain"`
}

// recall reads the file.
func (j *Journal) recall() error {
	if j.o.Seen == "" {
		return nil
	}
	b, err := os.ReadFile(j.o.Seen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f seenFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	c, hexErr := hex.DecodeString(f.Chain)
	if err = errors.Join(err, hexErr); err != nil {
		return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("%s, which says how far the journal was, cannot be read (%s): "+
			"remove it if the journal was surely not put back to older data", j.o.Seen, err)}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.Acknowledged >= j.saved.seq { // a slower server may have written after a faster one
		j.saved = place{f.Acknowledged, chain(c)}
	}
	return nil
}

// remember writes the file if there is something new.
func (j *Journal) remember() {
	j.mu.Lock()
	now, was := j.acked, j.saved
	if now.seq > was.seq {
		j.saved = now
	}
	j.mu.Unlock()
	if j.o.Seen == "" || now.seq <= was.seq {
		return
	}
	if err := writeSeen(j.o.Seen, now); err != nil {
		j.o.Log.Warn("cannot note how far the journal is: after a restart older data would not be noticed", "err", err)
	}
}

func writeSeen(path string, p place) error {
	b, err := json.Marshal(seenFile{p.seq, hex.EncodeToString([]byte(p.chain))})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
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
		err = os.Rename(f.Name(), path)
	}
	return err
}

package bolt

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// TestAppendBesideASnapshot: what an Append writes does not grow with the snapshot, in a new
// file and in one that an older gpupool wrote.
func TestAppendBesideASnapshot(t *testing.T) {
	for _, old := range []bool{false, true} {
		j, err := Open(filepath.Join(t.TempDir(), "journal.db"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { j.Close() }) //nolint:errcheck // of no interest here
		if old {
			if err := j.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Delete(keyName) }); err != nil {
				t.Fatal(err)
			}
		}
		add := func() int64 {
			before := j.db.Stats().TxStats
			if _, err := j.Append(t.Context(), [][]byte{[]byte("a record")}); err != nil {
				t.Fatal(err)
			}
			after := j.db.Stats().TxStats
			return after.GetPageAlloc() - before.GetPageAlloc()
		}
		small := add()
		if err := j.Snapshot(t.Context(), 1, make([]byte, 8<<20)); err != nil {
			t.Fatal(err)
		}
		if big := add(); big > small+64<<10 {
			t.Errorf("an append wrote %d bytes, and %d beside a snapshot of 8 MiB (written by an older one: %v)", small, big, old)
		}
	}
}

package bolt

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// Layout of a bbolt meta page (file format version 2), which stands at the start
// of the first two pages: a page header of 16 bytes, then these fields.
const (
	metaMagic    = 0xED0CDAED
	metaAt       = 16
	metaPageSize = metaAt + 8
	metaPages    = metaAt + 40 // pages in use
	metaTx       = metaAt + 48
	metaSum      = metaAt + 56
	metaEnd      = metaAt + 64
)

// checkPages refuses a file that is shorter than its newest meta page says: bbolt
// maps it into memory, and a page beyond the end would end the process.
func checkPages(path string, size int64) error {
	if size == 0 {
		return nil // bbolt makes it new
	}
	f, err := os.Open(path)
	if err != nil {
		return translate(path, "open", err)
	}
	defer f.Close()
	head := make([]byte, 64<<10+metaEnd)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF { //nolint:errorlint // ReadAt returns it as it is
		return translate(path, "read", err)
	}
	head = head[:n]
	need, newest, found := int64(0), uint64(0), false
	look := func(at int) int {
		if at+metaEnd > len(head) {
			return 0
		}
		m := head[at:]
		pageSize := int(binary.NativeEndian.Uint32(m[metaPageSize:]))
		h := fnv.New64a()
		h.Write(m[metaAt:metaSum])
		if binary.NativeEndian.Uint32(m[metaAt:]) != metaMagic || binary.NativeEndian.Uint64(m[metaSum:]) != h.Sum64() {
			return 0
		}
		if tx := binary.NativeEndian.Uint64(m[metaTx:]); !found || tx > newest {
			found, newest, need = true, tx, int64(binary.NativeEndian.Uint64(m[metaPages:]))*int64(pageSize)
		}
		return pageSize
	}
	if first := look(0); first > 0 {
		look(first)
	} else {
		for at := 1024; at <= 64<<10; at *= 2 { // the first is damaged: the second is one page in, of a size not known
			look(at)
		}
	}
	if !found {
		return corrupt(path, "neither of its two meta pages is whole", nil)
	}
	if size < need {
		return corrupt(path, fmt.Sprintf("it has %d bytes of %d: its end was cut off", size, need), nil)
	}
	return nil
}

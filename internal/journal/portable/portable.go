// Package portable is a journal as one file that can be carried about: a copy to keep, or
// to move from one store to another. It is written once, from the beginning to its
// end, and read; what is not whole, or was changed, is refused.
//
// The file is a line that says what it is, then frames: a kind (S snapshot, R record, E
// end), the sequence number (8 bytes), the length (4), the bytes, and a CRC-32C over all of
// these (4); numbers are big-endian. The end's bytes are the SHA-256 of the file before it.
// Writing and reading cost one pass over it.
package portable

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/gpupool/gpupool/internal/journal"
)

// head is the first line of the file; its number changes when an older gpupool could not
// read the file any more.
const (
	headStart = "gpupool-journal "
	head      = headStart + "1\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	kindSnapshot = 'S'
	kindRecord   = 'R'
	kindEnd      = 'E'
)

// Export writes what a journal holds. The callback, if there is one, is told of every
// record. It returns the newest sequence number.
func Export(ctx context.Context, from journal.Journal, w io.Writer, each func(seq uint64)) (last uint64, err error) {
	out := &writer{w: bufio.NewWriterSize(w, 1<<20), sum: sha256.New()}
	out.put([]byte(head))
	frame := func(kind byte) func(uint64, []byte) error {
		return func(seq uint64, b []byte) error {
			last = seq
			if each != nil {
				each(seq)
			}
			return out.frame(kind, seq, b)
		}
	}
	if err := from.Load(ctx, frame(kindSnapshot), frame(kindRecord)); err != nil {
		return 0, err
	}
	if err := out.frame(kindEnd, last, out.sum.Sum(nil)); err != nil {
		return 0, err
	}
	return last, out.w.Flush()
}

type writer struct {
	w   *bufio.Writer
	sum hash.Hash
	err error
}

func (w *writer) put(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
	w.sum.Write(b)
}

func (w *writer) frame(kind byte, seq uint64, b []byte) error {
	if uint64(len(b)) > math.MaxUint32 {
		return fmt.Errorf("record %d has %d bytes, and a frame holds at most %d", seq, len(b), uint32(math.MaxUint32))
	}
	h := frameHead(kind, seq, len(b))
	w.put(h)
	w.put(b)
	w.put(binary.BigEndian.AppendUint32(nil, crc32.Update(crc32.Checksum(h, castagnoli), castagnoli, b)))
	return w.err
}

const frameHeadBytes = 13

func frameHead(kind byte, seq uint64, length int) []byte {
	h := binary.BigEndian.AppendUint64([]byte{kind}, seq)
	return binary.BigEndian.AppendUint32(h, uint32(length))
}

// File is such a file as a journal that can only be read.
type File struct {
	path string
	f    *os.File
}

// Is reports whether a file begins as one of these.
func Is(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	b := make([]byte, len(headStart))
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == headStart
}

// Open opens a file to read it.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("the copy of a journal cannot be read: %s", err)}
	}
	return &File{path: path, f: f}, nil
}

// Append implements journal.Journal: it is refused.
func (f *File) Append(context.Context, [][]byte) (uint64, error) { return 0, f.readOnly() }

// Snapshot implements journal.Journal: it is refused.
func (f *File) Snapshot(context.Context, uint64, []byte) error { return f.readOnly() }

func (f *File) readOnly() error {
	return &journal.Error{Code: journal.ErrReadOnly, Msg: fmt.Sprintf("%s is a copy of a journal, which is only read: import it", f.path)}
}

// Close implements journal.Journal.
func (f *File) Close() error { return f.f.Close() }

// Load implements journal.Journal. What the callbacks were told may be part of a damaged
// file, as long as Load has not returned nil.
func (f *File) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf("%s cannot be read from its beginning: %s", f.path, err)}
	}
	return Read(ctx, f.path, f.f, snapshot, record)
}

// Read tells what a file holds; name is for errors.
func Read(ctx context.Context, name string, from io.Reader, snapshot, record func(uint64, []byte) error) error {
	r := &reader{name: name, r: bufio.NewReaderSize(from, 1<<20), sum: sha256.New()}
	line, err := r.r.ReadString('\n')
	switch {
	case err != nil || len(line) < len(headStart) || line[:len(headStart)] != headStart:
		return r.damaged("it is not the copy of a journal")
	case line != head:
		return &journal.Error{Code: journal.ErrVersion, Msg: fmt.Sprintf("%s has format %q and this gpupool reads %q: use the version that wrote it, or a newer one", name, line, head)}
	}
	r.sum.Write([]byte(line))
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := r.sum.Sum(nil)
		kind, seq, b, err := r.frame()
		if err != nil {
			return err
		}
		switch {
		case kind == kindSnapshot && first:
			r.last = seq
			err = snapshot(seq, b)
		case kind == kindRecord && seq == r.last+1:
			r.last = seq
			err = record(seq, b)
		case kind == kindRecord:
			err = r.damaged(fmt.Sprintf("record %d follows record %d", seq, r.last))
		case kind == kindEnd && seq == r.last && bytes.Equal(b, before):
			if _, err := r.r.ReadByte(); !errors.Is(err, io.EOF) {
				return r.damaged("something follows its end")
			}
			return nil
		case kind == kindEnd:
			err = r.damaged("its end does not match what is before it")
		default:
			err = r.damaged(fmt.Sprintf("a frame of kind %q stands after record %d", kind, r.last))
		}
		if err != nil {
			return err
		}
	}
}

type reader struct {
	name string
	r    *bufio.Reader
	sum  hash.Hash
	last uint64
}

func (r *reader) damaged(what string) error {
	return &journal.Error{Code: journal.ErrCorrupt, Msg: fmt.Sprintf("%s is damaged: %s. Use another copy", r.name, what)}
}

func (r *reader) frame() (kind byte, seq uint64, b []byte, err error) {
	cut := func() (byte, uint64, []byte, error) {
		return 0, 0, nil, r.damaged(fmt.Sprintf("it ends after record %d, in the middle", r.last))
	}
	h := make([]byte, frameHeadBytes)
	if _, err := io.ReadFull(r.r, h); err != nil {
		return cut()
	}
	kind, seq = h[0], binary.BigEndian.Uint64(h[1:])
	// A length that is damaged must not take memory that the file does not have.
	var body bytes.Buffer
	if n := int64(binary.BigEndian.Uint32(h[9:])); n > 0 {
		if _, err := io.CopyN(&body, r.r, n); err != nil {
			return cut()
		}
	}
	b = body.Bytes()
	check := make([]byte, 4)
	if _, err := io.ReadFull(r.r, check); err != nil {
		return cut()
	}
	if binary.BigEndian.Uint32(check) != crc32.Update(crc32.Checksum(h, castagnoli), castagnoli, b) {
		return 0, 0, nil, r.damaged(fmt.Sprintf("what follows record %d does not match its checksum", r.last))
	}
	r.sum.Write(h)
	r.sum.Write(b)
	r.sum.Write(check)
	return kind, seq, b, nil
}

// importGroup is how many records are stored at once.
const importGroup = 500

// Import puts a copy into an empty journal, after it has read it once to the end. The
// callback, if there is one, is told of every record. It returns the newest sequence number.
func Import(ctx context.Context, from *File, to journal.Journal, each func(seq uint64)) (last uint64, err error) {
	nothing := func(uint64, []byte) error { return nil }
	if err := from.Load(ctx, nothing, nothing); err != nil {
		return 0, err
	}
	used := func(seq uint64, _ []byte) error {
		return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("the journal to import into holds something already (record %d): import only into an empty one", seq)}
	}
	if err := to.Load(ctx, used, used); err != nil {
		return 0, err
	}
	var group [][]byte
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		got, err := to.Append(ctx, group)
		if err == nil && got != last {
			err = &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("the journal to import into gave record %d the number %d", last, got)}
		}
		group = group[:0]
		return err
	}
	err = from.Load(ctx, func(seq uint64, state []byte) error {
		last = seq
		r, ok := to.(journal.Restorer)
		if !ok {
			return fmt.Errorf("the journal to import into cannot take a snapshot as its beginning")
		}
		return r.Restore(ctx, seq, state)
	}, func(seq uint64, rec []byte) error {
		last = seq
		group = append(group, rec)
		if each != nil {
			each(seq)
		}
		if len(group) >= importGroup {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	return last, err
}

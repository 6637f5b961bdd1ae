package redis

import (
	"bytes"
	"crypto/sha256"
)

// A chain says of a record what it is and what came before it, so that two stores with
// the same chain at a record hold the same records up to there. Before the first
// record it is empty.
type chain string

// chainBytes is its length; it guards against faults, not against attackers.
const chainBytes = 16

func (c chain) next(record []byte) chain {
	h := sha256.New()
	h.Write([]byte(c))
	h.Write(record)
	return chain(h.Sum(nil)[:chainBytes])
}

// place is a record, and what led to it.
type place struct {
	seq   uint64
	chain chain
}

// Bounds of a window.
const (
	windowRecords = 20_000
	windowBytes   = 32 << 20
)

// window keeps the newest records that this server has seen, so that it can give them
// back to a store that has lost them.
type window struct {
	start place // before the first that is kept
	kept  []kept
	bytes int
}

type kept struct {
	chain chain
	data  []byte
}

// end is the newest record that was seen.
func (w *window) end() place {
	if n := len(w.kept); n > 0 {
		return place{w.start.seq + uint64(n), w.kept[n-1].chain}
	}
	return w.start
}

// reset forgets everything: what comes next follows p.
func (w *window) reset(p place) { *w = window{start: p} }

// push takes the record that follows the end.
func (w *window) push(c chain, data []byte) {
	w.kept = append(w.kept, kept{c, bytes.Clone(data)})
	w.bytes += len(data)
	for len(w.kept) > windowRecords || w.bytes > windowBytes && len(w.kept) > 1 {
		w.start = place{w.start.seq + 1, w.kept[0].chain}
		w.bytes -= len(w.kept[0].data)
		w.kept[0] = kept{}
		w.kept = w.kept[1:]
	}
}

// at returns the chain at a record, if it is known.
func (w *window) at(seq uint64) (chain, bool) {
	switch {
	case seq == w.start.seq:
		return w.start.chain, true
	case seq < w.start.seq || seq > w.end().seq:
		return "", false
	}
	return w.kept[seq-w.start.seq-1].chain, true
}

// after returns the records that follow p, if p is known and as it was seen here.
func (w *window) after(p place) ([]kept, bool) {
	if c, known := w.at(p.seq); !known || c != p.chain {
		return nil, false
	}
	return w.kept[p.seq-w.start.seq:], true
}

package tracing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/gpupool/gpupool/internal/work"
)

// ids derives the ids of traces and spans from what they are about, so that they are the
// same after a restart, and whoever starts a task's process needs to ask nobody.
type ids struct {
	installation string
	sample       float64
}

// trace is which trace a task belongs to.
type trace struct {
	trace   [16]byte
	parent  []byte // the client's span; nil without one
	sampled bool
}

// traceparent is that of W3C Trace Context. Later versions may say more behind it.
var traceparent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// parse reads a traceparent; what is not one counts as none.
func parse(s string) (trace, bool) {
	m := traceparent.FindStringSubmatch(s)
	if len(m) == 0 || m[1] == "ff" || m[1] == "00" && m[5] != "" {
		return trace{}, false
	}
	var t trace
	b, _ := hex.DecodeString(m[2])
	parent, _ := hex.DecodeString(m[3])
	flags, _ := hex.DecodeString(m[4])
	copy(t.trace[:], b)
	t.parent, t.sampled = parent, flags[0]&1 == 1
	return t, t.trace != [16]byte{} && string(parent) != string(make([]byte, 8))
}

func format(trace [16]byte, span []byte, sampled bool) string {
	flags := 0
	if sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", trace, span, flags)
}

// of says which trace a task belongs to: the client's, or one of its own.
func (x ids) of(task work.TaskID, parent string) trace {
	if t, ok := parse(parent); ok {
		return t
	}
	var t trace
	copy(t.trace[:], x.hash("trace", task, 0, "", 0))
	// The same task is sampled or not by every server that knows the rule.
	t.sampled = float64(binary.BigEndian.Uint64(t.trace[8:])>>11) < x.sample*(1<<53)
	return t
}

// span is the id of a span; at tells spans of one name at one epoch apart.
func (x ids) span(task work.TaskID, epoch uint32, name string, at work.Time) []byte {
	return x.hash("span", task, epoch, name, at)[:8]
}

func (x ids) hash(what string, task work.TaskID, epoch uint32, name string, at work.Time) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "gpupool\x00%s\x00%s\x00%d\x00%d\x00%s\x00%d", what, x.installation, task, epoch, name, at))
	return sum[:]
}

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// library is the hardware as the driver sees it. helper is the real one.
type library interface {
	// call carries out one operation. It fails with *fault where NVML refused, with
	// *lostAnswer where nobody knows whether it happened.
	call(ctx context.Context, r request) (response, error)
	restarts() int64
	close()
}

// lostAnswer is a call whose helper died or hung.
type lostAnswer struct {
	op   string
	gpu  string
	hung bool // this very call did not come back
	why  string
}

func (e *lostAnswer) Error() string {
	return fmt.Sprintf("the NVML helper gave no answer to %s of GPU %s: %s", e.op, e.gpu, e.why)
}

// helperOptions of a helper.
type helperOptions struct {
	Command []string // the program and its arguments that serve NVML
	Env     []string // beside this process's own
	Timeout time.Duration
	Log     *slog.Logger
}

// helper is a process that speaks to NVML. It is started when it is first needed,
// killed when a call hangs, and started again, each time a little later.
type helper struct {
	o       helperOptions
	started atomic.Int64

	mu     sync.Mutex
	cur    *session
	next   time.Time     // no start before
	wait   time.Duration // until the one after
	closed bool
}

const (
	firstWait = 20 * time.Millisecond
	longWait  = 5 * time.Second
)

func newHelper(o helperOptions) *helper {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	return &helper{o: o}
}

func (h *helper) restarts() int64 { return max(h.started.Load()-1, 0) }

// call implements library. A look that failed because another call took the helper
// down is asked once more.
func (h *helper) call(ctx context.Context, r request) (response, error) {
	for again := false; ; again = true {
		s, err := h.session(ctx)
		if err != nil {
			return response{}, err
		}
		resp, err := s.call(ctx, r, h.patience(r.Op))
		lost, is := errors.AsType[*lostAnswer](err)
		switch {
		case err == nil && resp.Fault != nil:
			return response{}, resp.Fault
		case err == nil:
			h.worked()
			return resp, nil
		case !is || lost.hung || mutates(r.Op) || again:
			return response{}, err
		}
	}
}

// patience is how long an operation may take: switching MIG mode may reset a GPU.
func (h *helper) patience(op string) time.Duration {
	switch op {
	case opSetMIG:
		return 6 * h.o.Timeout
	case opCreateGI, opCreateCI, opDestroyCI, opDestroyGI:
		return 3 * h.o.Timeout
	}
	return h.o.Timeout
}

// worked forgets how often the helper had to be started lately.
func (h *helper) worked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait = 0
}

// session gives the running helper, or starts one.
func (h *helper) session(ctx context.Context) (*session, error) {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, errors.New("the driver was closed")
		}
		if s := h.cur; s != nil && !s.ended() {
			h.mu.Unlock()
			return s, nil
		}
		old, pause := h.cur, time.Until(h.next)
		if pause <= 0 && (old == nil || old.reaped()) {
			s, err := h.start()
			h.mu.Unlock()
			return s, err
		}
		h.mu.Unlock()
		if err := h.pause(ctx, old, pause); err != nil {
			return nil, err
		}
	}
}

// pause waits until the next helper may start. While the old one is stuck in the
// kernel there is none: what it does there may still happen.
func (h *helper) pause(ctx context.Context, old *session, d time.Duration) error {
	timer := time.NewTimer(max(d, h.o.Timeout))
	defer timer.Stop()
	gone, start := make(<-chan struct{}), make(<-chan time.Time)
	if old != nil && !old.reaped() {
		gone = old.gone
	} else {
		start = time.After(d)
	}
	select {
	case <-start:
	case <-gone:
	case <-timer.C:
		return &lostAnswer{op: "a call", why: "the old helper was killed and does not end: it is stuck in the NVIDIA driver; if that lasts, reboot the machine"}
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// start starts a helper. The lock is held.
func (h *helper) start() (*session, error) {
	if h.cur != nil {
		h.o.Log.Warn("the NVML helper ended and is started again", "why", h.cur.why(), "restarts", h.started.Load())
	}
	h.wait = min(max(2*h.wait, firstWait), longWait)
	h.next = time.Now().Add(h.wait)
	s, err := startSession(h.o)
	if err != nil {
		return nil, err
	}
	h.started.Add(1)
	h.cur = s
	return s, nil
}

func (h *helper) close() {
	h.mu.Lock()
	s := h.cur
	h.closed = true
	h.mu.Unlock()
	if s != nil {
		s.kill("the driver was closed")
		select {
		case <-s.gone:
		case <-time.After(h.o.Timeout):
		}
	}
}

// session is one run of the helper.
type session struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *tail
	done chan struct{} // closed when no answer will come any more
	gone chan struct{} // closed when the process has ended

	writing sync.Mutex

	mu      sync.Mutex
	last    uint64
	pending map[uint64]chan response // nil once it ended
	end     string
}

// startSession starts the program. It reads requests from its standard input, whose
// end is its own; answers come over a pipe of their own, because a library may print.
func startSession(o helperOptions) (*session, error) {
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("the NVML helper cannot be started: %w", err)
	}
	defer out.Close()
	s := &session{done: make(chan struct{}), gone: make(chan struct{}), pending: map[uint64]chan response{}, said: &tail{}}
	s.cmd = exec.Command(o.Command[0], o.Command[1:]...) //nolint:noctx // it lives longer than the call that needs it first
	s.cmd.Env = append(os.Environ(), o.Env...)
	s.cmd.ExtraFiles = []*os.File{out}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	s.cmd.WaitDelay = time.Second
	apart(s.cmd)
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		_ = answers.Close()
		return nil, fmt.Errorf("the NVML helper %s cannot be started: %w", o.Command[0], err)
	}
	go s.read(answers)
	return s, nil
}

// read hands answers to who waits for them, until the helper ends.
func (s *session) read(answers *os.File) {
	defer answers.Close()
	var err error
	for {
		var r response
		if err = readFrame(answers, &r); err != nil {
			break
		}
		s.mu.Lock()
		to := s.pending[r.ID]
		delete(s.pending, r.ID)
		s.mu.Unlock()
		if to != nil {
			to <- r
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.kill(err.Error())
	}
	s.in.Close() //nolint:errcheck // its end is all that is wanted
	why := "it ended"
	if err = s.cmd.Wait(); err != nil {
		why += " with " + err.Error()
	}
	if said := s.said.String(); said != "" {
		why += ": " + said
	}
	s.finish(why)
	close(s.gone)
}

func (s *session) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *session) reaped() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func (s *session) why() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end
}

// finish lets nobody wait any more; the first reason is the one that is told.
func (s *session) finish(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		s.end, s.pending = why, nil
		close(s.done)
	}
}

// kill ends the helper.
func (s *session) kill(why string) {
	s.finish(why)
	s.cmd.Process.Kill() //nolint:errcheck // it may have ended already
}

// call sends a request and waits for its answer.
func (s *session) call(ctx context.Context, r request, patience time.Duration) (response, error) {
	answer := make(chan response, 1)
	s.mu.Lock()
	if s.pending == nil {
		s.mu.Unlock()
		return response{}, &lostAnswer{op: r.Op, gpu: r.GPU, why: s.why()}
	}
	s.last++
	r.ID = s.last
	s.pending[r.ID] = answer
	s.mu.Unlock()
	s.writing.Lock()
	err := writeFrame(s.in, r)
	s.writing.Unlock()
	if err != nil {
		s.cmd.Process.Kill() //nolint:errcheck // it has ended, or will; read knows its last words
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case resp := <-answer:
		return resp, nil
	case <-timer.C:
		why := fmt.Sprintf("the call did not come back within %s", patience)
		s.kill(fmt.Sprintf("%s: %s of GPU %s", why, r.Op, r.GPU))
		return response{}, &lostAnswer{op: r.Op, gpu: r.GPU, hung: true, why: why}
	case <-s.done:
		select { // it may have answered just before
		case resp := <-answer:
			return resp, nil
		default:
			return response{}, &lostAnswer{op: r.Op, gpu: r.GPU, why: s.why()}
		}
	case <-ctx.Done():
		return response{}, ctx.Err()
	}
}

// tail keeps the last words of a process.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailKept = 512

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - tailKept; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.b)), "?")
}

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

const (
	// silence is how long the stream may be without a byte. The server says
	// something every 15 s, so a longer silence is a dead connection.
	silence = 45 * time.Second
	// reconnectFor bounds the attempts after the stream was lost.
	reconnectFor = time.Minute
	maxLine      = 4 << 20 // bytes
)

// EventQuery says which events to follow; the zero value is all, from now on.
type EventQuery struct {
	Task  uint64 // only about this task
	After uint64 // from behind this number on, as far as they are kept
	All   bool   // from the oldest that is kept; After does not count then
}

// Events follows what happens. When the connection is lost it connects again and
// goes on where it was; an event of kind "gap" says that some were lost because
// the server did not keep them. It ends with an error: ctx's, a refusal, or a
// server that is away for more than a minute.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[apitype.Event, error] {
	return func(yield func(apitype.Event, error) bool) {
		s := stream{c: c, task: q.Task, yield: yield}
		switch {
		case q.All:
			s.last = "0"
		case q.After > 0:
			s.last = number(q.After)
		}
		if err := s.run(ctx); err != nil {
			yield(apitype.Event{}, err)
		}
	}
}

// errStop says that the one who ranges wants no more.
var errStop = errors.New("stop")

// stream is one walk over events, across connections.
type stream struct {
	c     *Client
	task  uint64
	last  string // id to go on after; "" = from now
	heard bool   // something came over the newest connection
	yield func(apitype.Event, error) bool
}

func (s *stream) run(ctx context.Context) error {
	wait := newBackoff()
	var lostAt time.Time
	for {
		err := s.connect(ctx)
		var refused *Error
		switch {
		case errors.Is(err, errStop):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &refused) && refused.Status != 0 && refused.Status != http.StatusServiceUnavailable:
			return err
		case s.heard:
			s.heard = false
			lostAt = time.Now()
			wait.Reset()
		case lostAt.IsZero(): // there never was a connection; open has tried for a while
			return err
		case time.Since(lostAt) > max(reconnectFor, s.c.retry):
			return err
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

// connect reads one connection to its end, which is always an error.
func (s *stream) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := values()
	if s.task > 0 {
		q.Set("task", number(s.task))
	}
	k := get("/v1/events", q)
	k.accept = "text/event-stream"
	if s.last != "" {
		k.header = http.Header{"Last-Event-Id": {s.last}}
	}
	resp, err := s.c.open(ctx, k)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	return s.read(resp.Body, func() { s.heard = true; watchdog.Reset(silence) })
}

// read takes a text/event-stream apart: lines of "field: value", a blank line after
// each event, comments begin with a colon.
func (s *stream) read(r io.Reader, alive func()) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	id := s.last
	var data []string
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			s.last = id
			if data == nil {
				continue
			}
			var ev apitype.Event
			if err := json.Unmarshal([]byte(strings.Join(data, "\n")), &ev); err != nil {
				return &Error{Status: http.StatusOK, Code: codeUnexpected, Title: "unreadable event", cause: err,
					Detail: fmt.Sprintf("event %s cannot be read: %s; is the server of this version?", id, err)}
			}
			data = nil
			if !s.yield(ev, nil) {
				return errStop
			}
		case field == "id":
			id = value
		case field == "data":
			data = append(data, value)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

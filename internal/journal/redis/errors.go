package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gpupool/gpupool/internal/journal"
)

// transient marks a failure that may be over at the next try.
type transient struct{ err error }

func (t *transient) Error() string { return fmt.Sprint(t.err) }

func (t *transient) Unwrap() error { return t.err }

// passes reports whether a failure is one of connections or of a store that is about to
// change its mind: a primary that starts, stops, or has just become a replica.
func passes(err error) bool {
	var marked *transient
	var network net.Error
	switch {
	case errors.As(err, &marked), errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, net.ErrClosed):
		return true
	case errors.Is(err, context.Canceled):
		return false
	}
	for _, word := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK ", "NOREPLICAS", "BUSY", "UNBLOCKED",
		"redis: all sentinels", "redis: cluster has no nodes", "redis: connection pool", "redis: no master", "redis: nil"} {
		if strings.HasPrefix(err.Error(), word) {
			return true
		}
	}
	return false
}

// translate puts an error of the client or the store into ours.
func (j *Journal) translate(what string, err error) error {
	var ours *journal.Error
	if err == nil || errors.As(err, &ours) || errors.Is(err, context.Canceled) {
		return err
	}
	code, says := journal.ErrFailed, err.Error()
	switch {
	case strings.HasPrefix(says, "OOM"):
		code, says = journal.ErrFull, "its memory is full ("+says+"). Raise its maxmemory; what was acknowledged is safe"
	case strings.HasPrefix(says, "MISCONF"):
		code, says = journal.ErrFull, "it cannot write to its disk ("+says+"). Make room there; what was acknowledged is safe"
	case strings.HasPrefix(says, "NOAUTH"), strings.HasPrefix(says, "WRONGPASS"):
		says += ". Check the user in the address and the password file"
	case strings.HasPrefix(says, "NOPERM"):
		says += ". docs/high-availability.md lists what the user needs"
	case passes(err):
		says += ". Is it running, and the address right?"
	}
	return &journal.Error{Code: code, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: %s", what, j.name, says)}
}

func (j *Journal) deposed(why string, cause error) error {
	if cause != nil {
		why += " (" + cause.Error() + ")"
	}
	return &journal.Error{Code: journal.ErrDeposed, Err: cause, Msg: fmt.Sprintf("journal %s takes nothing from here: %s", j.name, why)}
}

func (j *Journal) corrupt(what string) error {
	return &journal.Error{Code: journal.ErrCorrupt, Msg: fmt.Sprintf("journal %s is damaged: %s. Nothing was changed. Keep a copy of the Redis data, then restore a backup (docs/operations.md)", j.name, what)}
}

package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/gpupool/gpupool/internal/journal"
)

func corrupt(path, what string, cause error) error {
	return &journal.Error{Code: journal.ErrCorrupt, Err: cause, Msg: fmt.Sprintf("journal %s is damaged: %s. Nothing was changed. Keep a copy of the file, then restore a backup, or start with another --data", path, what)}
}

func failed(err error, format string, a ...any) error {
	return &journal.Error{Code: journal.ErrFailed, Err: err, Msg: fmt.Sprintf(format, a...)}
}

// translate puts an error of bbolt or the system into ours.
func translate(path, what string, err error) error {
	var ours *journal.Error
	switch {
	case err == nil, errors.As(err, &ours):
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return &journal.Error{Code: journal.ErrLocked, Err: err, Msg: fmt.Sprintf("journal %s is in use: another gpupool serve has it open. Stop that one, or give another --data", path)}
	case notBolt(err):
		return corrupt(path, "it is not a bbolt file ("+err.Error()+")", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, bolterrors.ErrDatabaseReadOnly):
		return &journal.Error{Code: journal.ErrReadOnly, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: it is not writable here (%s). Make it writable for this user, or give another --data", what, path, err)}
	case noSpace(err):
		return &journal.Error{Code: journal.ErrFull, Err: err, Msg: fmt.Sprintf("cannot %s journal %s: no space is left on the disk. Make room and start again; what was acknowledged is safe", what, path)}
	case errors.Is(err, fs.ErrNotExist):
		return failed(err, "cannot %s journal %s: its folder does not exist", what, path)
	}
	return failed(err, "cannot %s journal %s: %s", what, path, err)
}

// notBolt also looks at the text: a file cut within its meta pages has no error of its own.
func notBolt(err error) bool {
	for _, e := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum, bolterrors.ErrInvalidMapping} {
		if errors.Is(err, e) {
			return true
		}
	}
	return strings.Contains(err.Error(), "file size too small")
}

// noSpace also looks at the text: where bbolt makes the file larger, it passes on only that.
func noSpace(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, bolterrors.ErrMaxSizeReached} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// panicked is the error for a panic of bbolt, which it has for damaged pages.
func panicked(path, what string, r any) error {
	return corrupt(path, fmt.Sprintf("it cannot be used (%s: %v)", what, r), fmt.Errorf("%v\n%s", r, debug.Stack()))
}

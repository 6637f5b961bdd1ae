package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/gpupool/gpupool/internal/runner"
)

// copyOut moves a program's output into its log. It keeps reading when the log
// cannot be written (a full disk): the program must not hang for that.
func copyOut(log *lumberjack.Logger, out io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := out.Read(buf)
		if n > 0 {
			log.Write(buf[:n]) //nolint:errcheck // lost, and the program goes on
		}
		if err != nil {
			return
		}
	}
}

// Logs implements runner.LogReader. Rotated parts come first, as far as they are
// kept.
func (r *Runner) Logs(ctx context.Context, id runner.ID, o runner.LogOptions) (io.ReadCloser, error) {
	f := folderOf(r.root, id)
	names, err := f.logs()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		st, known, err := r.status(id)
		switch {
		case err != nil:
			return nil, err
		case !known && !f.has(fileStarted):
			return nil, fmt.Errorf("there is no output of member %s: %w", id, fs.ErrNotExist)
		case !o.Follow || st.State == runner.Exited:
			return io.NopCloser(bytes.NewReader(nil)), nil // it has said nothing
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	in, out := io.Pipe()
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	go func() {
		defer stop()
		out.CloseWithError(r.pour(ctx, id, out, o))
	}()
	return &logStream{in, cancel}, nil
}

type logStream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends a follow.
func (s *logStream) Close() error {
	s.cancel()
	return s.PipeReader.Close()
}

// logs lists the log files, oldest first.
func (f folder) logs() ([]string, error) {
	names, err := filepath.Glob(f.path(fileLog + "-*")) // the name ends in the time of rotation
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if f.has(fileLog) {
		names = append(names, f.path(fileLog))
	}
	return names, nil
}

// pour writes the log files one after another, and goes on with what comes.
func (r *Runner) pour(ctx context.Context, id runner.ID, w io.Writer, o runner.LogOptions) error {
	f := folderOf(r.root, id)
	var last os.FileInfo // of the file that was written last
	var offset int64
	begin := func() error {
		names, err := f.logs()
		if err != nil {
			return err
		}
		if o.Tail > 0 {
			last, offset, err = tail(names, w, o.Tail)
			return err
		}
		for _, name := range names {
			if last, offset, err = pourFile(name, 0, w); err != nil {
				return err
			}
		}
		return nil
	}
	if err := begin(); err != nil || !o.Follow {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		st, known, err := r.status(id) // before the read: what it said before its end is in the file then
		ended := err == nil && (!known || st.State == runner.Exited)
		if last, offset, err = f.catchUp(last, offset, w); err != nil {
			return err
		}
		if ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// catchUp writes what came since. The file that was current may have been rotated
// away: it is found again by its identity, not its name.
func (f folder) catchUp(last os.FileInfo, offset int64, w io.Writer) (os.FileInfo, int64, error) {
	names, err := f.logs()
	if err != nil {
		return last, offset, err
	}
	from := 0
	for i, name := range names {
		if info, err := os.Stat(name); err == nil && last != nil && os.SameFile(info, last) {
			from = i
			break
		}
		if last != nil {
			from = len(names) - 1 // not kept any more
		}
	}
	for i := from; i >= 0 && i < len(names); i++ {
		at := int64(0)
		if info, err := os.Stat(names[i]); err == nil && last != nil && os.SameFile(info, last) {
			at = offset
		}
		if last, offset, err = pourFile(names[i], at, w); err != nil {
			return last, offset, err
		}
	}
	return last, offset, nil
}

// pourFile writes a file from an offset to its end as it is now.
func pourFile(name string, from int64, w io.Writer) (os.FileInfo, int64, error) {
	in, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil // dropped by rotation just now
	}
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err == nil {
		_, err = in.Seek(from, io.SeekStart)
	}
	if err != nil {
		return nil, 0, err
	}
	n, err := io.Copy(w, in)
	return info, from + n, err
}

// tail writes the last lines of the files taken together.
func tail(names []string, w io.Writer, n int) (last os.FileInfo, offset int64, err error) {
	var lines [][]byte
	for _, name := range names {
		var b bytes.Buffer
		if last, offset, err = pourFile(name, 0, &b); err != nil {
			return last, offset, err
		}
		for line := range bytes.Lines(b.Bytes()) {
			if lines = append(lines, line); len(lines) > 2*n {
				lines = slices.Clone(lines[len(lines)-n:])
			}
		}
	}
	out := bufio.NewWriter(w)
	for _, line := range lines[max(0, len(lines)-n):] {
		out.Write(line) //nolint:errcheck // Flush tells
	}
	return last, offset, out.Flush()
}

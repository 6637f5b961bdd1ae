package fake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

// Faulty lets a text file say what goes wrong, so that people and tests can see what
// follows, for as long as a line stands there: carve (no slices can be made), free (none
// can be freed) and lose GPU-ID (that GPU does not answer; it comes back empty). The file
// is read before each call and need not be there; what is wrong with it is told to
// complain, once in a row.
func Faulty(d *Driver, path string, complain func(error)) driver.Driver {
	return &faulty{Driver: d, path: path, complain: complain}
}

type faulty struct {
	*Driver
	path     string
	complain func(error)
	mu       sync.Mutex
	lost     []string // by this file
	told     string
}

// faultLines is what a fault file says.
type faultLines struct {
	carve, free bool
	lose        []string
}

func (f *faulty) read() faultLines {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now faultLines
	file, err := os.Open(f.path)
	if err == nil {
		defer file.Close()
		now, err = f.parse(file)
	}
	switch {
	case err == nil || os.IsNotExist(err):
		f.told = ""
	case err.Error() != f.told:
		f.told = err.Error()
		f.complain(fmt.Errorf("%s: %w", f.path, err))
	}
	for _, id := range f.lost {
		if !slices.Contains(now.lose, id) {
			f.LoseGPU(id, "")
		}
	}
	for _, id := range now.lose {
		if !slices.Contains(f.lost, id) {
			f.LoseGPU(id, "lost, as the file "+f.path+" says")
		}
	}
	f.lost = now.lose
	return now
}

func (f *faulty) parse(r io.Reader) (now faultLines, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		switch w := strings.Fields(text); {
		case len(w) == 0:
		case len(w) == 1 && w[0] == "carve":
			now.carve = true
		case len(w) == 1 && w[0] == "free":
			now.free = true
		case len(w) == 2 && w[0] == "lose" && f.has(w[1]):
			now.lose = append(now.lose, w[1])
		default:
			err = fmt.Errorf("line %d: expected carve, free or lose GPU-ID with the id of a GPU, got %q", n, text)
		}
	}
	if err == nil {
		err = lines.Err()
	}
	return now, err
}

func (f *faulty) has(id string) bool {
	f.Driver.mu.Lock()
	defer f.Driver.mu.Unlock()
	return f.hw.boards[id] != nil
}

func (f *faulty) fault(what string) error {
	return &driver.Error{Code: driver.ErrHardware, Msg: "no slices can be " + what + ", as the file " + f.path + " says"}
}

// Observe implements driver.Driver.
func (f *faulty) Observe(ctx context.Context) (driver.Inventory, error) {
	f.read()
	return f.Driver.Observe(ctx)
}

// Carve implements driver.Driver.
func (f *faulty) Carve(ctx context.Context, p driver.Part) ([]string, error) {
	if f.read().carve {
		return nil, f.fault("made")
	}
	return f.Driver.Carve(ctx, p)
}

// Free implements driver.Driver.
func (f *faulty) Free(ctx context.Context, host string, o work.Owner) error {
	if f.read().free {
		return f.fault("freed")
	}
	return f.Driver.Free(ctx, host, o)
}

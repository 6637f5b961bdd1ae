package fake

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

// steered is what a load file says.
type steered struct {
	tasks map[work.TaskID]Load
	all   *Load // of tasks that are not named
}

// LoadFile gives tasks the load that a text file says, so that people and tests can make
// one look idle or busy: lines of TASK COMPUTE [MEMORY], where TASK is a number or *, and
// COMPUTE and MEMORY are shares from 0 to 1. The last line about a task counts. The file
// is read again when it changes; it need not be there, and what is wrong with it is told
// to complain, once a change. Tasks that it does not name have the load of LoadOf.
func LoadFile(path string, complain func(error)) func(driver.Part) Load {
	var mu sync.Mutex
	var size int64
	var changed time.Time
	var now steered
	return func(p driver.Part) Load {
		mu.Lock()
		defer mu.Unlock()
		info, err := os.Stat(path)
		if err != nil {
			now, size = steered{}, 0
			return LoadOf(p)
		}
		if info.Size() != size || !info.ModTime().Equal(changed) {
			size, changed = info.Size(), info.ModTime()
			if next, err := readLoadFile(path); err != nil {
				complain(err)
			} else {
				now = next
			}
		}
		if l, named := now.tasks[p.Owner.Task]; named {
			return l
		}
		if now.all != nil {
			return *now.all
		}
		return LoadOf(p)
	}
}

func readLoadFile(path string) (steered, error) {
	f, err := os.Open(path)
	if err != nil {
		return steered{}, err
	}
	defer f.Close()
	s, err := parseLoad(f)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func parseLoad(r io.Reader) (steered, error) {
	s := steered{tasks: map[work.TaskID]Load{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(text)
		if len(f) == 0 {
			continue
		}
		if len(f) != 2 && len(f) != 3 {
			return s, fmt.Errorf("line %d: expected TASK COMPUTE [MEMORY], got %q", n, text)
		}
		l := Load{Memory: 0.5}
		for i, to := range []*float64{&l.Compute, &l.Memory}[:len(f)-1] {
			x, err := strconv.ParseFloat(f[i+1], 64)
			if err != nil || !(x >= 0 && x <= 1) {
				return s, fmt.Errorf("line %d: expected a share from 0 to 1, got %q", n, f[i+1])
			}
			*to = x
		}
		if f[0] == "*" {
			s.all = &l
			continue
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return s, fmt.Errorf("line %d: expected the number of a task or *, got %q", n, f[0])
		}
		s.tasks[work.TaskID(id)] = l
	}
	return s, lines.Err()
}

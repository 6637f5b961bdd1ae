package fake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Faulty lets a text file say what goes wrong, so that people and tests can see what
// follows, for as long as a line stands there:
//
//	carve               no slices can be made
//	free                none can be freed
//	lose GPU-ID         that GPU does not answer; it comes back empty
//	cordon GPU-ID WHY   the driver wants no new work on it
//	drain GPU-ID WHY    and wants what runs there moved away, for a reset
//	xid GPU-ID CODE     the hardware reported that fault of a program, once for each such
//	                    line, at the time at which the file was last changed
//	mps                 GPUs are shared by MPS, else by time slices
//
// The file is read before each call and need not be there; what is wrong with it is told
// to complain, once in a row.
func Faulty(d *Driver, path string, complain func(error)) driver.Driver {
	return &faulty{Driver: d, path: path, complain: complain}
}

type faulty struct {
	*Driver
	path     string
	complain func(error)
	mu       sync.Mutex
	lost     []string         // by this file
	judged   []driver.Verdict // the same
	xids     []xidLine        // reported already
	told     string
}

// faultLines is what a fault file says.
type faultLines struct {
	carve, free, mps bool
	lose             []string
	judge            []driver.Verdict
	xids             []xidLine
}

// xidLine asks for a fault.
type xidLine struct {
	id   string
	code int
}

func (f *faulty) read() faultLines {
	f.mu.Lock()
	defer f.mu.Unlock()
	var now faultLines
	var changed time.Time
	file, err := os.Open(f.path)
	if err == nil {
		defer file.Close()
		if info, e := file.Stat(); e == nil {
			changed = info.ModTime()
		}
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
	f.ail(now, changed)
	return now
}

// ail tells the driver what the file says of the health of GPUs.
func (f *faulty) ail(now faultLines, changed time.Time) {
	for _, v := range f.judged {
		f.Judge(driver.Verdict{GPUID: v.GPUID})
	}
	for _, v := range now.judge {
		f.Judge(v)
	}
	f.judged = now.judge
	known := slices.Clone(f.xids)
	for _, x := range now.xids {
		if i := slices.Index(known, x); i >= 0 {
			known = slices.Delete(known, i, i+1)
			continue
		}
		f.Fault(driver.Fault{GPUID: x.id, At: changed, Code: fmt.Sprint("XID ", x.code), What: faultWords(x.code), Owner: f.alone(x.id)})
	}
	f.xids = now.xids
	if now.mps {
		f.Share(gpu.SharingMPS)
	} else {
		f.Share("")
	}
}

// faultWords says what the faults of programs mean that people try most.
func faultWords(code int) string {
	switch code {
	case 13:
		return "graphics engine exception"
	case 31:
		return "GPU memory page fault"
	case 43:
		return "GPU stopped processing"
	case 94:
		return "contained ECC error"
	}
	return "as the file of faults says"
}

// alone is who has a GPU, if it is one only.
func (f *faulty) alone(id string) (o work.Owner) {
	f.Driver.mu.Lock()
	defer f.Driver.mu.Unlock()
	for i, u := range f.hw.boards[id].uses() {
		if i > 0 && u.owner != o {
			return work.Owner{}
		}
		o = u.owner
	}
	return o
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
		case len(w) == 1 && w[0] == "mps":
			now.mps = true
		case len(w) >= 2 && (w[0] == "cordon" || w[0] == "drain") && f.has(w[1]):
			now.judge = append(now.judge, f.verdict(w))
		case len(w) == 3 && w[0] == "xid" && f.has(w[1]) && isNumber(w[2]):
			code, _ := strconv.Atoi(w[2])
			now.xids = append(now.xids, xidLine{w[1], code})
		default:
			err = fmt.Errorf("line %d: expected carve, free, mps, lose GPU-ID, cordon GPU-ID WHY, drain GPU-ID WHY or xid GPU-ID CODE with the id of a GPU, got %q", n, text)
		}
	}
	if err == nil {
		err = lines.Err()
	}
	return now, err
}

// verdict reads "drain GPU-ID WHY".
func (f *faulty) verdict(w []string) driver.Verdict {
	v := driver.Verdict{GPUID: w[1], Do: gpu.Verdict(w[0]), Why: strings.Join(w[2:], " ")}
	if v.Why == "" {
		v.Why = "as the file " + f.path + " says"
	}
	if v.Do == gpu.VerdictDrain {
		v.Mend = "nvidia-smi --gpu-reset -i " + v.GPUID
	}
	return v
}

func isNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0
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

package assess

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// columns are those of a CSV file; the second name of one is another way to write it.
var columns = []struct {
	name, other string
	needed      bool
}{
	{"time", "", true},
	{"gpu", "", true},
	{"utilisation", "utilization", true},
	{"memory_used_mib", "", false},
	{"model", "", false},
	{"host", "", false},
	{"pod", "job", false},
	{"namespace", "tenant", false},
}

// csvError is a fault in a file, with its place.
type csvError struct {
	path string
	line int
	msg  string
}

func (e *csvError) Error() string { return fmt.Sprintf("%s:%d: %s", e.path, e.line, e.msg) }

// table reads rows of readings.
type table struct {
	path string
	csv  *csv.Reader
	at   [8]int // of each of columns; -1 = there is none
	row  []string
}

func newTable(path string, r io.Reader) (*table, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = b.Discard(3)
	}
	t := &table{path: path, csv: csv.NewReader(b)}
	t.csv.ReuseRecord = true
	head, err := t.csv.Read()
	if err != nil {
		return nil, t.broken(err)
	}
	names := make([]string, len(head))
	for i, name := range head {
		names[i] = strings.ToLower(strings.TrimSpace(name))
		if slices.Contains(names[:i], names[i]) {
			return nil, &csvError{path, 1, fmt.Sprintf("column %q stands there twice", name)}
		}
	}
	for i, c := range columns {
		t.at[i] = slices.IndexFunc(names, func(s string) bool { return s == c.name || s == c.other && s != "" })
		if t.at[i] < 0 && c.needed {
			return nil, &csvError{path, 1, fmt.Sprintf("column %q is missing: expected time,gpu,utilisation and, where known, memory_used_mib,model,host,pod,namespace", c.name)}
		}
	}
	return t, nil
}

func (t *table) broken(err error) error {
	if errors.Is(err, io.EOF) {
		return &csvError{t.path, 1, "it is empty: expected a header and rows"}
	}
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return &csvError{t.path, parse.Line, "not a row of CSV: " + parse.Err.Error()}
	}
	return fmt.Errorf("%s cannot be read: %w", t.path, err)
}

func (t *table) bad(format string, args ...any) error {
	line, _ := t.csv.FieldPos(0)
	return &csvError{t.path, line, fmt.Sprintf(format, args...)}
}

// line is a row of the file.
type line struct {
	time time.Time
	about
	pod podKey
	use float64 // 0 to 1; negative = not known
	mem float64
}

// next reads a row; false at the end.
func (t *table) next() (line, bool, error) {
	row, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return line{}, false, nil
	}
	if err != nil {
		return line{}, false, t.broken(err)
	}
	t.row = row
	var x line
	if x.time, err = t.moment(t.text(0)); err != nil {
		return x, false, err
	}
	if x.gpu = t.text(1); x.gpu == "" {
		return x, false, t.bad("gpu: expected a name for the GPU, such as its UUID, got nothing")
	}
	if x.use, err = t.number(2, 100); err != nil {
		return x, false, err
	}
	if x.use > 0 {
		x.use /= 100
	}
	if x.mem, err = t.number(3, 1e9); err != nil {
		return x, false, err
	}
	x.model, x.host = t.text(4), t.text(5)
	if name := t.text(6); name != "" {
		x.pod = podKey{"", t.text(7), name}
	}
	return x, true, nil
}

func (t *table) text(column int) string {
	if t.at[column] < 0 {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.row[t.at[column]]))
}

// number reads a number of 0 to most; an empty field is not known.
func (t *table) number(column int, most float64) (float64, error) {
	s := strings.TrimSuffix(t.text(column), "%")
	if s == "" {
		return -1, nil
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > most {
		return 0, t.bad("%s: expected a number from 0 to %g, or nothing where it is not known, got %q", columns[column].name, most, s)
	}
	return f, nil
}

// moment reads RFC 3339, "2006-01-02 15:04:05" in UTC, or seconds since 1970.
func (t *table) moment(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 && f < 1e11 {
		return time.UnixMilli(int64(f * 1000)), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006/01/02 15:04:05.000"} {
		if at, err := time.Parse(layout, s); err == nil && at.Year() > 1970 && at.Year() < 3000 {
			return at, nil
		}
	}
	return time.Time{}, t.bad("time: expected one such as 2026-11-30T12:00:00Z or 1796040000, got %q", s)
}

// FromCSV reads readings from a file and says what they mean. Without times in the
// options it takes all of the file; and without a step the time between two readings.
func FromCSV(path string, o Options) (*Result, error) {
	first, last, step, err := spanOf(path)
	if err != nil {
		return nil, err
	}
	if o.Step == 0 {
		o.Step = step
	}
	if o.From.IsZero() || !o.From.After(first.Add(-o.Step)) {
		o.From = first.Add(-time.Second)
	}
	if o.To.IsZero() || o.To.After(last) { // whole steps, and the last reading in one
		o.To = o.From.Add((last.Sub(o.From) + o.Step - 1).Truncate(o.Step))
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	w, err := o.window()
	if err != nil {
		return nil, err
	}
	r := newRecord(w, o.IdleBelow)
	err = withTable(path, func(t *table) error { return r.fill(t) })
	if err != nil {
		return nil, err
	}
	if len(r.devices) == 0 {
		return nil, fmt.Errorf("%s has no reading between %s and %s", path, o.From.UTC().Format(time.RFC3339), o.To.UTC().Format(time.RFC3339))
	}
	return analyse(r, o, path, []string{"utilisation"}, "")
}

func withTable(path string, read func(*table) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("the readings cannot be read: %w", err)
	}
	defer f.Close()
	t, err := newTable(path, f)
	if err != nil {
		return err
	}
	return read(t)
}

// looked is how many gaps between readings are looked at to find the usual one.
const looked = 10_000

// spanOf is the first and the last moment of a file, and the usual time between two
// readings of a GPU, in whole minutes.
func spanOf(path string) (first, last time.Time, step time.Duration, err error) {
	var gaps []time.Duration
	before := map[deviceKey]time.Time{}
	err = withTable(path, func(t *table) error {
		for {
			x, ok, err := t.next()
			if err != nil || !ok {
				return err
			}
			if first.IsZero() || x.time.Before(first) {
				first = x.time
			}
			if x.time.After(last) {
				last = x.time
			}
			if len(gaps) < looked {
				if was, ok := before[x.deviceKey]; ok && x.time.After(was) {
					gaps = append(gaps, x.time.Sub(was))
				}
				before[x.deviceKey] = x.time
			}
		}
	})
	if err == nil && first.IsZero() {
		err = &csvError{path, 2, "it has no row: expected readings"}
	}
	step = time.Minute
	if slices.Sort(gaps); len(gaps) > 0 {
		step = max(step, (gaps[len(gaps)/2] + time.Minute - 1).Truncate(time.Minute))
	}
	return first, last, step, err
}

// gathering is what was read of a device in the step that is not over yet.
type gathering struct {
	step int
	of   map[int]*sums // by pod, -1 = none
}

type sums struct {
	reading
	n int
}

// fill reads a whole file. The rows of each GPU come in order of time.
func (r *record) fill(t *table) error {
	open := map[int]*gathering{}
	for {
		x, ok, err := t.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		step := r.index(x.time)
		if step < 0 || step >= r.n {
			continue
		}
		dev := r.device(x.about)
		g := open[dev]
		if g == nil {
			g = &gathering{step, map[int]*sums{}}
			open[dev] = g
		}
		if step < g.step {
			return t.bad("time: %s of GPU %s comes after a later one: sort the rows by time", x.time.UTC().Format(time.RFC3339), x.gpu)
		}
		if step > g.step {
			r.close(dev, g)
			g.step = step
		}
		pod := -1
		if x.pod.name != "" {
			pod = r.pod(x.pod)
		}
		g.add(pod, x)
	}
	for dev := range r.devices {
		if g := open[dev]; g != nil {
			r.close(dev, g)
		}
	}
	return nil
}

func (g *gathering) add(pod int, x line) {
	s := g.of[pod]
	if s == nil {
		s = &sums{reading: reading{mean: -1, peak: -1, fit: -1, memMiB: -1}}
		g.of[pod] = s
	}
	s.memMiB = max(s.memMiB, x.mem)
	if x.use >= 0 {
		s.mean = (max(s.mean, 0)*float64(s.n) + x.use) / float64(s.n+1)
		s.n++
		s.peak = max(s.peak, x.use)
		s.fit = s.peak
	}
}

// close takes a step that is over into the record.
func (r *record) close(dev int, g *gathering) {
	var pods []int
	for pod := range g.of { // order: choose sorts them
		if pod >= 0 {
			pods = append(pods, pod)
		}
	}
	pod := r.devices[dev].choose(pods)
	r.put(dev, g.step, pod, g.of[pod].reading)
	clear(g.of)
}

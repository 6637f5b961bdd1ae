package trace

import (
	"bufio"
	"compress/gzip"
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

// Bounds that no real row passes; beyond them a number is a mistake, and sums of
// such numbers could overflow.
const (
	maxSeconds = 50 * 365 * 86400 // of a time since the beginning of a trace, and of a duration
	maxGPUs    = 100_000
	maxAmount  = 1 << 40 // MiB or thousandths of a core
)

// table reads a CSV file row by row and knows where it is.
type table struct {
	path    string
	csv     *csv.Reader
	columns map[string]int
	row     []string
}

// openFile opens a file, unpacked when its name ends in .gz.
func openFile(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the trace cannot be read: %w", err)
	}
	if !strings.HasSuffix(path, ".gz") {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		f.Close() //nolint:errcheck // only read from
		return nil, &Error{Path: path, Msg: "its name ends in .gz and it is not packed by gzip: " + err.Error()}
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// newTable reads the header.
func newTable(path string, r io.Reader) (*table, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" {
		b.Discard(3) //nolint:errcheck // just seen
	}
	t := &table{path: path, csv: csv.NewReader(b), columns: map[string]int{}}
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	head, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &Error{Path: path, Msg: "it is empty: expected a header and rows"}
	case err != nil:
		return nil, t.broken(err)
	}
	for i, name := range head {
		name = strings.TrimSpace(name)
		if _, twice := t.columns[name]; twice {
			return nil, &Error{path, 1, fmt.Sprintf("column %q stands there twice", name)}
		}
		t.columns[name] = i
	}
	return t, nil
}

// newRows reads a file that has no header.
func newRows(path string, r io.Reader, columns ...string) *table {
	t := &table{path: path, csv: csv.NewReader(r), columns: map[string]int{}}
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	for i, name := range columns {
		t.columns[name] = i
	}
	return t
}

// broken puts an error of the CSV reader into ours.
func (t *table) broken(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return &Error{t.path, parse.Line, "not a row of CSV: " + parse.Err.Error()}
	}
	return &Error{Path: t.path, Msg: "cannot be read: " + err.Error()}
}

// need refuses a file that lacks columns, or has others than the ones allowed.
func (t *table) need(required []string, optional ...string) error {
	for _, c := range required {
		if _, ok := t.columns[c]; !ok {
			return &Error{t.path, 1, fmt.Sprintf("column %q is missing: expected %s", c, strings.Join(append(required, optional...), ","))}
		}
	}
	for c := range t.columns {
		if !slices.Contains(required, c) && !slices.Contains(optional, c) {
			return &Error{t.path, 1, fmt.Sprintf("column %q is not known: expected %s", c, strings.Join(append(required, optional...), ","))}
		}
	}
	return nil
}

// next goes to the next row. It returns false at the end.
func (t *table) next() (bool, error) {
	var err error
	t.row, err = t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, t.broken(err)
	case len(t.row) != len(t.columns):
		return false, t.bad("expected %d fields as in the header, got %d", len(t.columns), len(t.row))
	}
	return true, nil
}

func (t *table) bad(format string, args ...any) error {
	line, _ := t.csv.FieldPos(0)
	return &Error{t.path, line, fmt.Sprintf(format, args...)}
}

// text returns a field, "" when the file has no such column.
func (t *table) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.row[i]))
}

// number reads a field of 0 to most; an empty one is absent.
func (t *table) number(column string, most float64) (f float64, present bool, err error) {
	s := t.text(column)
	if s == "" {
		return 0, false, nil
	}
	f, err = strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > most {
		return 0, false, t.bad("%s: expected a number from 0 to %g, got %q", column, most, s)
	}
	return f, true, nil
}

// count reads a whole number of 0 to most; an empty field is 0.
func (t *table) count(column string, most float64) (int64, error) {
	f, _, err := t.number(column, most)
	if err == nil && f != math.Trunc(f) {
		err = t.bad("%s: expected a whole number, got %q", column, t.text(column))
	}
	return int64(f), err
}

// seconds reads a required time or duration.
func (t *table) seconds(column string) (time.Duration, error) {
	f, present, err := t.number(column, maxSeconds)
	if err == nil && !present {
		err = t.bad("%s: expected seconds, got nothing", column)
	}
	return time.Duration(math.Round(f * float64(time.Second))), err
}

package bench

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/baseline"
	"github.com/gpupool/gpupool/internal/trace"
)

// Names in the folder of the packing experiment, as Alibaba and the simulator gave them.
const (
	podPrefix     = "openb_pod_list_"
	publishedFile = "published.csv"
)

// Bounds that no real row passes; beyond them a number is a mistake, and sums of such numbers could overflow.
const (
	mostAmount   = 1 << 40 // MiB or thousandths of a core
	mostHostGPUs = 64      // as many as gpupool takes
)

// csvTable reads a CSV file row by row and knows where it is. Columns that nobody asks for may stand there.
type csvTable struct {
	path    string
	csv     *csv.Reader
	columns map[string]int
	fields  int
	row     []string
}

// newCSVTable reads the header, and wants these columns in it.
func newCSVTable(path string, r io.Reader, need ...string) (*csvTable, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	if mark, _ := b.Peek(3); string(mark) == "\xef\xbb\xbf" {
		b.Discard(3) //nolint:errcheck // just seen
	}
	t := &csvTable{path: path, csv: csv.NewReader(b), columns: map[string]int{}}
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	head, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, &trace.Error{Path: path, Msg: "it is empty: expected a header with the columns " + strings.Join(need, ",")}
	case err != nil:
		return nil, t.broken(err)
	}
	t.fields = len(head)
	for i, name := range head {
		name = strings.Clone(strings.TrimSpace(name))
		if _, twice := t.columns[name]; twice {
			return nil, &trace.Error{Path: path, Line: 1, Msg: fmt.Sprintf("column %q stands there twice", name)}
		}
		t.columns[name] = i
	}
	for _, c := range need {
		if _, ok := t.columns[c]; !ok {
			return nil, &trace.Error{Path: path, Line: 1, Msg: fmt.Sprintf("column %q is missing: expected the columns %s", c, strings.Join(need, ","))}
		}
	}
	return t, nil
}

// each calls f for every row.
func (t *csvTable) each(f func() error) error {
	for {
		var err error
		t.row, err = t.csv.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return t.broken(err)
		case len(t.row) != t.fields:
			return t.bad("expected %d fields as in the header, got %d", t.fields, len(t.row))
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// broken puts an error of the CSV reader into ours.
func (t *csvTable) broken(err error) error {
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		return &trace.Error{Path: t.path, Line: parse.Line, Msg: "not a row of CSV: " + parse.Err.Error()}
	}
	return &trace.Error{Path: t.path, Msg: "cannot be read: " + err.Error()}
}

// bad is an error about the row.
func (t *csvTable) bad(format string, args ...any) error {
	line, _ := t.csv.FieldPos(0)
	return &trace.Error{Path: t.path, Line: line, Msg: fmt.Sprintf(format, args...)}
}

// text returns a field, "" when the file has no such column.
func (t *csvTable) text(column string) string {
	i, ok := t.columns[column]
	if !ok {
		return ""
	}
	return strings.Clone(strings.TrimSpace(t.row[i]))
}

// count reads a whole number of 0 to most; an empty field is 0.
func (t *csvTable) count(column string, most int64) (int64, error) {
	s := t.text(column)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, t.bad("%s: expected a whole number from 0 to %d, got %q", column, most, s)
	}
	return n, nil
}

// podColumns are those that make a file a pod list. gpu_spec may stand there too.
func podColumns() []string { return []string{"cpu_milli", "memory_mib", "num_gpu", "gpu_milli"} }

// readPods reads a pod list. Nothing in a field means that nothing is asked for, except that a pod of whole GPUs need
// not say that it wants 1000 thousandths of each.
func readPods(path string, r io.Reader) ([]baseline.Task, error) {
	t, err := newCSVTable(path, r, podColumns()...)
	if err != nil {
		return nil, err
	}
	var out []baseline.Task
	err = t.each(func() error {
		x, err := t.pod()
		out = append(out, x)
		return err
	})
	if err == nil && len(out) == 0 {
		err = &trace.Error{Path: path, Msg: "it has no pod: expected rows below the header"}
	}
	return out, err
}

func (t *csvTable) pod() (x baseline.Task, err error) {
	if x.CPUMilli, err = t.count("cpu_milli", mostAmount); err != nil {
		return x, err
	}
	if x.MemMiB, err = t.count("memory_mib", mostAmount); err != nil {
		return x, err
	}
	gpus, err := t.count("num_gpu", mostHostGPUs)
	if err != nil || gpus == 0 {
		return x, err
	}
	milli, err := t.count("gpu_milli", 1000)
	if err != nil {
		return x, err
	}
	if t.text("gpu_milli") == "" {
		milli = 1000
	}
	switch {
	case milli == 0:
		return x, t.bad("gpu_milli: expected 1 to 1000 of each of %d GPUs, got 0", gpus)
	case gpus > 1 && milli != 1000:
		return x, t.bad("gpu_milli: expected 1000 of each of %d GPUs, got %d", gpus, milli)
	}
	x.GPUs, x.Milli = int(gpus), int(milli)
	if spec := t.text("gpu_spec"); spec != "" {
		x.Models = strings.Split(spec, "|")
		if slices.Contains(x.Models, "") {
			return x, t.bad("gpu_spec: expected GPU models with | between them, got %q", spec)
		}
	}
	return x, nil
}

// readNodes reads a node list and leaves out hosts without a GPU, as published.
func readNodes(path string, r io.Reader) ([]baseline.Host, error) {
	t, err := newCSVTable(path, r, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}
	var out []baseline.Host
	err = t.each(func() error {
		x := baseline.Host{Model: t.text("model")}
		var err error
		if x.CPUMilli, err = t.count("cpu_milli", mostAmount); err != nil {
			return err
		}
		if x.MemMiB, err = t.count("memory_mib", mostAmount); err != nil {
			return err
		}
		gpus, err := t.count("gpu", mostHostGPUs)
		switch {
		case err != nil || gpus == 0:
			return err
		case x.Model == "":
			return t.bad("model: expected the model of %d GPUs, got nothing", gpus)
		}
		x.GPUs = int(gpus)
		out = append(out, x)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = &trace.Error{Path: path, Msg: "no host has a GPU: expected rows with 1 or more under gpu"}
	}
	return out, err
}

// publishedFigures is the mean allocation in percent, by workload and policy.
type publishedFigures map[string]map[string]float64

func readPublished(path string, r io.Reader) (publishedFigures, error) {
	t, err := newCSVTable(path, r, "workload", "policy", "allocation_percent_mean")
	if err != nil {
		return nil, err
	}
	out := publishedFigures{}
	err = t.each(func() error {
		workload, policy, s := t.text("workload"), t.text("policy"), t.text("allocation_percent_mean")
		if workload == "" || policy == "" {
			return t.bad("expected a workload and a policy, got %q and %q", workload, policy)
		}
		x, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(x) || x < 0 || x > 100 {
			return t.bad("allocation_percent_mean: expected a number from 0 to 100, got %q", s)
		}
		if _, twice := out[workload][policy]; twice {
			return t.bad("%s of %s stands there twice", policy, workload)
		}
		if out[workload] == nil {
			out[workload] = map[string]float64{}
		}
		out[workload][policy] = x
		return nil
	})
	return out, err
}

// readFile opens a file for one of the readers above.
func readFile[T any](path string, read func(path string, r io.Reader) (T, error)) (T, error) {
	f, err := os.Open(path)
	if err != nil {
		var none T
		return none, fmt.Errorf("the trace cannot be read: %w", err)
	}
	defer f.Close()
	return read(path, f)
}

// packingDir is the files of a folder of the packing experiment.
type packingDir struct {
	nodes     string
	published string            // "" = there is none
	pods      map[string]string // by the workload's name
}

// names returns the workloads in order.
func (d *packingDir) names() []string {
	out := make([]string, 0, len(d.pods))
	for name := range d.pods {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// listPackingDir finds out what is in a folder. Of pod lists it reads the headers.
func listPackingDir(dir string) (*packingDir, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the trace cannot be read: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".csv") {
			files = append(files, e.Name())
		}
	}
	d := &packingDir{pods: map[string]string{}}
	nodes, err := nodeList(dir, files)
	if err != nil {
		return nil, err
	}
	d.nodes = filepath.Join(dir, nodes)
	for _, f := range files {
		path := filepath.Join(dir, f)
		switch f {
		case nodes:
			continue
		case publishedFile:
			d.published = path
			continue
		}
		_, err := readFile(path, func(path string, r io.Reader) (*csvTable, error) { return newCSVTable(path, r, podColumns()...) })
		if err != nil && !strings.HasPrefix(f, podPrefix) {
			continue // not a pod list: something else may lie there
		}
		name := strings.TrimPrefix(strings.TrimSuffix(f, ".csv"), podPrefix)
		if other, twice := d.pods[name]; twice {
			return nil, &trace.Error{Path: path, Msg: fmt.Sprintf("%s is the pod list %q too: expected one of each name", filepath.Base(other), name)}
		}
		d.pods[name] = path
	}
	if len(d.pods) == 0 {
		return nil, &trace.Error{Path: dir, Msg: "no pod list: expected openb_pod_list_NAME.csv or other files with the columns " + strings.Join(podColumns(), ",")}
	}
	return d, nil
}

// nodeList chooses the node list among the CSV files of a folder.
func nodeList(dir string, files []string) (string, error) {
	for _, name := range []string{"openb_node_list_gpu_node.csv", "openb_node_list_all_node.csv"} {
		if slices.Contains(files, name) {
			return name, nil
		}
	}
	var found []string
	for _, f := range files {
		if strings.Contains(f, "node") && !strings.HasPrefix(f, podPrefix) {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return "", &trace.Error{Path: dir, Msg: fmt.Sprintf("which file lists the nodes? expected openb_node_list_gpu_node.csv or one file whose name has \"node\" in it, got %q", found)}
	}
	return found[0], nil
}

// packingInput is what is offered to what.
type packingInput struct {
	hosts     []baseline.Host
	workloads []packingWorkload
}

type packingWorkload struct {
	name      string
	pods      []baseline.Task
	published map[string]float64
}

func (in *packingInput) gpus() (n int) {
	for _, h := range in.hosts {
		n += h.GPUs
	}
	return n
}

// readPacking reads a folder; of the pod lists those with the given names, or all.
func readPacking(dir string, names []string) (*packingInput, error) {
	files, err := listPackingDir(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if files.pods[name] == "" {
			return nil, &UnknownNameError{"workload", name, files.names()}
		}
	}
	in := &packingInput{}
	if in.hosts, err = readFile(files.nodes, readNodes); err != nil {
		return nil, err
	}
	published := publishedFigures{}
	if files.published != "" {
		if published, err = readFile(files.published, readPublished); err != nil {
			return nil, err
		}
	}
	for _, name := range files.names() {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		w := packingWorkload{name: name, published: published[name]}
		if w.pods, err = readFile(files.pods[name], readPods); err != nil {
			return nil, err
		}
		if err := w.check(files.pods[name], in.gpus()); err != nil {
			return nil, err
		}
		in.workloads = append(in.workloads, w)
	}
	return in, nil
}

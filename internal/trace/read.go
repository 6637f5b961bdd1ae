package trace

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Columns that tell the formats apart.
var (
	itpColumns    = []string{"job_id", "submission_time", "duration", "num_gpu"}
	phillyColumns = []string{"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}
	podColumns    = []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time"}
	nodeColumns   = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}
)

// What Read accepts, for errors.
const accepted = "a folder or file of itp (job_id,submission_time,duration,num_gpu), philly (timestamp,duration,num_gpus,gpu_time,cluster) or openb (pod and node lists), DIR/itp+openb, or a CSV file with submit_s,duration_s,gpus,fraction,gpu_memory_mib,tenant,priority,name,utilisation,class,pool; or a workload that is drawn: market, DIR/market with the folder serving in DIR, notebooks"

// Names of files in an openb folder.
const (
	defaultPods = "openb_pod_list_default.csv"
	gpuNodes    = "openb_node_list_gpu_node.csv"
)

// Read reads the trace at a path: a file, a folder of files of one format, or
// DIR/itp+openb, where DIR holds both. The format is told by the files' headers.
// Where no such file is, market and notebooks are what Market and Notebooks draw,
// and DIR/market is the market of the folder serving in DIR.
func Read(path string, o Options) (*Trace, error) {
	clean := filepath.Clean(path)
	if filepath.Base(clean) == "itp+openb" {
		return readMixed(filepath.Dir(clean), o)
	}
	info, err := os.Stat(clean)
	if os.IsNotExist(err) {
		switch dir, name := filepath.Split(clean); {
		case clean == "notebooks":
			return Notebooks(NotebookOptions{Seed: o.Seed})
		case clean == "market":
			return Market("", MarketOptions{Seed: o.Seed})
		case name == "market":
			return Market(filepath.Join(dir, "serving"), MarketOptions{Seed: o.Seed})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the trace cannot be read: %w; expected %s", err, accepted)
	}
	files := []string{clean}
	if info.IsDir() {
		if files, err = listFiles(clean); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(filepath.Base(f), "openb_pod_list") }) {
			return readOpenb(clean, o)
		}
	}
	t := &Trace{Name: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(clean), ".gz"), ".csv")}
	for _, f := range files {
		if err := t.readFile(f); err != nil {
			return nil, err
		}
	}
	return t.settle(path)
}

func listFiles(dir string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"*.csv", "*.csv.gz"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, &Error{Path: dir, Msg: "the folder holds no CSV file: expected " + accepted}
	}
	slices.Sort(out)
	return out, nil
}

// readFile adds the tasks of one file.
func (t *Trace) readFile(path string) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.add(path, f)
}

// add reads one file of whichever format its header says.
func (t *Trace) add(path string, r io.Reader) error {
	tab, err := newTable(path, r)
	if err != nil {
		return err
	}
	has := func(c string) bool { _, ok := tab.columns[c]; return ok }
	switch {
	case has("submission_time"):
		return t.addITP(tab, strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".gz"), ".csv"))
	case has("gpu_time"):
		return t.addPhilly(tab)
	case has("pod_phase"):
		return t.addPods(tab)
	case has("submit_s") || has("duration_s"):
		return t.addOwn(tab)
	case has("sn"):
		return &Error{Path: path, Msg: "this is openb's node list: give the folder that holds it beside a pod list"}
	}
	return &Error{path, 1, "the format is not known: expected " + accepted}
}

// each calls f for every row.
func (t *table) each(f func() error) error {
	for {
		ok, err := t.next()
		if err != nil || !ok {
			return err
		}
		if err := f(); err != nil {
			return err
		}
	}
}

// addITP reads a file of Microsoft's ITP clusters; the file's name is the tenant.
func (t *Trace) addITP(tab *table, cluster string) error {
	if err := tab.need(itpColumns); err != nil {
		return err
	}
	t.Source, t.Licence = "Microsoft ITP (microsoft/elasticflow-traces)", "MIT"
	return tab.each(func() error {
		x := Task{Name: tab.text("job_id"), Tenant: cluster, Priority: "normal", Utilisation: -1}
		return t.addWhole(tab, x, "submission_time", "num_gpu")
	})
}

// addWhole finishes a row of a trace that knows whole GPUs only.
func (t *Trace) addWhole(tab *table, x Task, submit, gpus string) error {
	var err error
	if submit != "" {
		if x.Submit, err = tab.seconds(submit); err != nil {
			return err
		}
	}
	if x.Duration, err = tab.seconds("duration"); err != nil {
		return err
	}
	n, err := tab.count(gpus, maxGPUs)
	if err != nil {
		return err
	}
	x.GPUs = int(n)
	switch {
	case x.Duration == 0:
		t.skip("they ran for no time")
	case n == 0:
		t.skip("they asked for no GPU")
	default:
		t.Tasks = append(t.Tasks, x)
	}
	return nil
}

// addOwn reads a file of our own format.
func (t *Trace) addOwn(tab *table) error {
	if err := tab.need([]string{"submit_s", "duration_s"}, "gpus", "fraction", "gpu_memory_mib", "tenant", "priority", "name", "utilisation", "class", "pool"); err != nil {
		return err
	}
	t.Source = tab.path
	return tab.each(func() error {
		x, err := tab.own()
		if err == nil {
			t.Tasks = append(t.Tasks, x)
		}
		return err
	})
}

// own reads a row of our own format.
func (t *table) own() (Task, error) {
	x := Task{Name: t.text("name"), Tenant: t.text("tenant"), Priority: cmp.Or(t.text("priority"), "normal"), Utilisation: -1, Class: t.text("class"), Pool: t.text("pool")}
	var err error
	if x.Submit, err = t.seconds("submit_s"); err != nil {
		return x, err
	}
	if x.Duration, err = t.seconds("duration_s"); err != nil {
		return x, err
	}
	gpus, err := t.count("gpus", maxGPUs)
	if err != nil {
		return x, err
	}
	fraction, _, err := t.number("fraction", 1)
	if err != nil {
		return x, err
	}
	if x.GPUMemoryMiB, err = t.count("gpu_memory_mib", maxAmount); err != nil {
		return x, err
	}
	if u, present, err := t.number("utilisation", 1); err != nil {
		return x, err
	} else if present {
		x.Utilisation = u
	}
	x.GPUs, x.Milli = int(gpus), int(fraction*1000+0.5)
	switch {
	case x.Duration == 0:
		return x, t.bad("duration_s: expected more than 0")
	case gpus > 0 && fraction > 0:
		return x, t.bad("expected gpus or fraction, got both (%d and %g)", gpus, fraction)
	case x.Milli >= 1000:
		x.GPUs, x.Milli = 1, 0
	case fraction > 0 && x.Milli == 0:
		x.Milli = 1
	case gpus == 0 && fraction == 0 && x.GPUMemoryMiB == 0 && t.text("gpus") == "":
		x.GPUs = 1
	}
	if x.Priority != "high" && x.Priority != "normal" && x.Priority != "low" {
		return x, t.bad("priority: expected high, normal or low, got %q", x.Priority)
	}
	if x.Class != "" && x.Class != Training && x.Class != Inference && x.Class != Interactive {
		return x, t.bad("class: expected training, inference or interactive, got %q", x.Class)
	}
	return x, nil
}

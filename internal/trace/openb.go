package trace

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// openbModels turns openb's names of GPU models into ours. G2 and G3 are names
// that hide the model; they stay.
var openbModels = map[string]string{"P100": "P100-16GB", "V100M16": "V100-16GB", "V100M32": "V100-32GB"}

func modelName(s string) string { return cmp.Or(openbModels[s], s) }

// openbPriority maps Kubernetes' quality of service: latency-sensitive and
// guaranteed pods are high, best-effort ones low.
var openbPriority = map[string]string{"LS": "high", "Guaranteed": "high", "Burstable": "normal", "BE": "low"}

// readOpenb reads a folder of Alibaba's openb: one pod list and the nodes.
func readOpenb(dir string, o Options) (*Trace, error) {
	t := &Trace{Name: "openb"}
	pods := filepath.Join(dir, cmp.Or(o.OpenbPods, defaultPods))
	if err := t.readFile(pods); err != nil {
		return nil, err
	}
	nodes := filepath.Join(dir, gpuNodes)
	f, err := openFile(nodes)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if t.Hosts, err = readNodes(nodes, f); err != nil {
		return nil, err
	}
	return t.settle(dir)
}

// addPods reads a pod list. A pod's duration is its deletion less its scheduling
// (its creation where that is empty).
func (t *Trace) addPods(tab *table) error {
	if err := tab.need(podColumns); err != nil {
		return err
	}
	t.Source, t.Licence = "Alibaba openb, gpu-v2023 (alibaba/clusterdata; the simulator's repository that carries the lists)", "Apache-2.0"
	return tab.each(func() error {
		x, why, err := tab.pod()
		switch {
		case err != nil:
			return err
		case why != "":
			t.skip(why)
		default:
			t.Tasks = append(t.Tasks, x)
		}
		return nil
	})
}

// pod reads a row; why says when it cannot be replayed.
func (t *table) pod() (x Task, why string, err error) {
	x = Task{Name: t.text("name"), Tenant: "openb", Priority: openbPriority[t.text("qos")], Utilisation: -1}
	if x.Priority == "" {
		return x, "", t.bad("qos: expected LS, Guaranteed, Burstable or BE, got %q", t.text("qos"))
	}
	if x.CPUMilli, err = t.count("cpu_milli", maxAmount); err != nil {
		return x, "", err
	}
	if x.MemoryMiB, err = t.count("memory_mib", maxAmount); err != nil {
		return x, "", err
	}
	gpus, err := t.count("num_gpu", maxGPUs)
	if err != nil {
		return x, "", err
	}
	milli, err := t.count("gpu_milli", 1000)
	if err != nil {
		return x, "", err
	}
	x.GPUs = int(gpus)
	if gpus == 1 && milli > 0 && milli < 1000 {
		x.GPUs, x.Milli = 0, int(milli)
	}
	if spec := t.text("gpu_spec"); spec != "" {
		for m := range strings.SplitSeq(spec, "|") {
			x.Models = append(x.Models, modelName(m))
		}
	}
	var begun, deleted time.Duration
	if x.Submit, err = t.seconds("creation_time"); err != nil {
		return x, "", err
	}
	if t.text("deletion_time") == "" {
		return x, "their deletion is not known", nil
	}
	if deleted, err = t.seconds("deletion_time"); err != nil {
		return x, "", err
	}
	begun = x.Submit
	if t.text("scheduled_time") != "" {
		if begun, err = t.seconds("scheduled_time"); err != nil {
			return x, "", err
		}
	}
	if x.Duration = deleted - begun; x.Duration <= 0 {
		return x, "they ran for no time", nil
	}
	return x, "", nil
}

// readNodes reads a node list.
func readNodes(path string, r io.Reader) ([]Host, error) {
	tab, err := newTable(path, r)
	if err != nil {
		return nil, err
	}
	if err := tab.need(nodeColumns); err != nil {
		return nil, err
	}
	var out []Host
	seen := map[string]bool{}
	err = tab.each(func() error {
		h := Host{Name: tab.text("sn"), Model: modelName(tab.text("model"))}
		if h.Name == "" || seen[h.Name] {
			return tab.bad("sn: expected a name that no other node has, got %q", h.Name)
		}
		seen[h.Name] = true
		gpus, err := tab.count("gpu", 64)
		if err != nil {
			return err
		}
		if h.GPUs = int(gpus); gpus > 0 && h.Model == "" {
			return tab.bad("model: expected a GPU model, got nothing")
		}
		if h.CPUMilli, err = tab.count("cpu_milli", maxAmount); err != nil {
			return err
		}
		h.MemoryMiB, err = tab.count("memory_mib", maxAmount)
		out = append(out, h)
		return err
	})
	return out, err
}

// readMixed puts the shapes of openb's pods with one GPU or less on ITP's arrivals
// and durations.
func readMixed(dir string, o Options) (*Trace, error) {
	for _, sub := range []string{"itp", "openb"} {
		if _, err := os.Stat(filepath.Join(dir, sub)); err != nil {
			return nil, &Error{Path: filepath.Join(dir, "itp+openb"), Msg: fmt.Sprintf("this trace is made of the folders itp and openb in %s, and %s is not there", dir, sub)}
		}
	}
	itp, err := Read(filepath.Join(dir, "itp"), o)
	if err != nil {
		return nil, err
	}
	openb, err := Read(filepath.Join(dir, "openb"), o)
	if err != nil {
		return nil, err
	}
	var shapes []Task
	for _, x := range openb.Tasks {
		if x.GPUs == 1 || x.Milli > 0 {
			shapes = append(shapes, x)
		}
	}
	if len(shapes) == 0 {
		return nil, &Error{Path: dir, Msg: "openb's pod list has no pod with one GPU or less to take shapes from"}
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x0be7b))
	for i := range itp.Tasks {
		if x := &itp.Tasks[i]; x.GPUs == 1 {
			s := shapes[rng.IntN(len(shapes))]
			x.GPUs, x.Milli, x.CPUMilli, x.MemoryMiB = s.GPUs, s.Milli, s.CPUMilli, s.MemoryMiB
		}
	}
	itp.Name = "itp+openb"
	itp.Source += " and " + openb.Source
	itp.Licence += " and " + openb.Licence
	itp.Synthetic = fmt.Sprintf("arrivals, durations and larger tasks are ITP's; each task of one GPU took GPU share, CPU and memory of a random openb pod with one GPU or less (seed %d)", o.Seed)
	itp.Skipped = append(itp.Skipped, openb.Skipped...)
	return itp, nil
}

package baseline

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const openb = "../../../shared/traces/openb"

// readTable returns the rows of a CSV file, by column.
func readTable(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	f, err := os.Open(filepath.Join(openb, name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the published workloads are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, column := range lines[0] {
			row[column] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func readHosts(t *testing.T) (hosts []Host) {
	t.Helper()
	for _, r := range readTable(t, "openb_node_list_gpu_node.csv") {
		hosts = append(hosts, Host{CPUMilli: int64(number(t, r["cpu_milli"])), MemMiB: int64(number(t, r["memory_mib"])),
			GPUs: number(t, r["gpu"]), Model: r["model"]})
	}
	return hosts
}

func readTasks(t *testing.T, workload string) (tasks []Task) {
	t.Helper()
	for _, r := range readTable(t, "openb_pod_list_"+workload+".csv") {
		task := Task{CPUMilli: int64(number(t, r["cpu_milli"])), MemMiB: int64(number(t, r["memory_mib"])), GPUs: number(t, r["num_gpu"])}
		if task.GPUs > 0 {
			task.Milli = number(t, r["gpu_milli"])
		}
		if r["gpu_spec"] != "" {
			task.Models = strings.Split(r["gpu_spec"], "|")
		}
		tasks = append(tasks, task)
	}
	return tasks
}

// published returns the mean allocation in percent that was published for a workload and a policy, by their names.
func published(t *testing.T) map[[2]string]float64 {
	t.Helper()
	out := map[[2]string]float64{}
	for _, r := range readTable(t, "published.csv") {
		x, err := strconv.ParseFloat(r["allocation_percent_mean"], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[[2]string{r["workload"], r["policy"]}] = x
	}
	return out
}

// arrivals returns the published experiment's: all tasks, shuffled, then tasks drawn with replacement for as long as
// all together ask for at most 1.3 times the GPUs. Workloads that ask for more (multigpu40 and multigpu50) lose tasks at
// random instead; as they are shuffled, those are the last ones.
func arrivals(tasks []Task, hosts []Host, rng *rand.Rand) []Task {
	total, asked := 0, 0
	for _, h := range hosts {
		total += h.GPUs * milliGPU
	}
	out := slices.Clone(tasks)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	for i := range out {
		asked += out[i].milli()
	}
	if asked*10 > total*13 {
		for asked*10 > total*13 {
			last := len(out) - 1
			asked -= out[last].milli()
			out = out[:last]
		}
		return out
	}
	for {
		x := tasks[rng.IntN(len(tasks))]
		if (asked+x.milli())*10 > total*13 {
			return out
		}
		asked += x.milli()
		out = append(out, x)
	}
}

// experiment returns the GPU allocation in percent at the end of the published experiment.
func experiment(t *testing.T, rule Rule, hosts []Host, tasks []Task, seed uint64) float64 {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	list := arrivals(tasks, hosts, rng)
	c, err := New(rule, hosts, tasks, rng)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		c.Place(x)
	}
	gpus := 0
	for _, h := range hosts {
		gpus += h.GPUs
	}
	return float64(c.Allocated()) / float64(gpus*milliGPU) * 100
}

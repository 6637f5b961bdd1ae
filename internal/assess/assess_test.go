package assess

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/gpu"
)

var midnight = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

// book writes readings, minute by minute.
type book struct {
	strings.Builder
}

const head = "time,gpu,host,model,namespace,pod,utilisation,memory_used_mib\n"

// add writes a pod's readings of a GPU from one minute to before another; a use below 0 is
// not known.
func (b *book) add(gpu, host, model, namespace, pod string, from, to int, use float64, mem int) {
	for i := from; i < to; i++ {
		u := fmt.Sprint(use)
		if use < 0 {
			u = ""
		}
		fmt.Fprintf(b, "%s,%s,%s,%s,%s,%s,%s,%d\n", midnight.Add(time.Duration(i)*time.Minute).Format(time.RFC3339), gpu, host, model, namespace, pod, u, mem)
	}
}

func (b *book) assess(t *testing.T, o Options) *Result {
	t.Helper()
	path := filepath.Join(t.TempDir(), "readings.csv")
	if err := os.WriteFile(path, []byte(head+b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := FromCSV(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: got %g, want %g", what, got, want)
	}
}

func (x *Result) by(name string) Means {
	for _, m := range x.Means {
		if m.Name == name {
			return m
		}
	}
	return Means{}
}

const h100 = "NVIDIA H100 80GB HBM3"

// TestHours has ten hours of three GPUs: one idles for six hours and is used for four,
// one is unallocated for five and unmeasured while held for five, one has no data for
// eight hours and is used past Kubernetes for two.
func TestHours(t *testing.T) {
	var b book
	b.add("a", "n1", h100, "vision", "nb", 0, 360, 0, 20480)
	b.add("a", "n1", h100, "vision", "nb", 360, 600, 80, 20480)
	b.add("b", "n1", h100, "", "", 0, 300, 0, 0)
	b.add("b", "n1", h100, "llm", "dark", 300, 600, -1, 100)
	b.add("c", "n2", h100, "", "", 0, 120, 60, 5000)
	x := b.assess(t, Defaults())
	near(t, "all", x.Hours.All, 30)
	near(t, "no data", x.Hours.NoData, 8)
	near(t, "unallocated", x.Hours.Free, 5)
	near(t, "stray", x.Hours.Stray, 2)
	near(t, "held", x.Hours.Held, 15)
	near(t, "idle", x.Hours.Idle, 6)
	near(t, "in use", x.Hours.Busy, 4)
	near(t, "unknown", x.Hours.Unknown, 5)
	if x.GPUs != 3 || x.Hosts != 2 {
		t.Errorf("%d GPUs on %d hosts, want 3 on 2", x.GPUs, x.Hosts)
	}
	near(t, "mean use", x.Use.Mean, 0.8*4/10)
	if h := x.Longest[0]; h.Pod != "nb" || h.For != "6h" || !h.Since.Equal(midnight.Add(-time.Second)) || h.MemoryMiB != 20480 {
		t.Errorf("longest idle: %+v", h)
	}
	if n := x.Namespaces[0]; n.Name != "vision" || n.Idle != 6 || n.Held != 10 {
		t.Errorf("namespaces: %+v", x.Namespaces)
	}
	if n := x.Namespaces[1]; n.Name != "llm" || n.Idle != 0 || n.Unknown != 5 {
		t.Errorf("what nobody measured is not idle: %+v", n)
	}
	// Held at once: a and the stray c for two hours; a alone; then a and b.
	if m := x.by("held now"); m.Soon.Most != 2 || math.Abs(m.Soon.Mean-(2*2+3*1+5*2)/10.0) > 1e-9 {
		t.Errorf("held now: %+v", m)
	}
	for _, want := range []string{"26.7 % of the GPU hours have no sample", "33.3 % of the allocated hours the use was not measured", "2.0 GPU hours were used although no pod"} {
		if !strings.Contains(strings.Join(x.Notes, "\n"), want) {
			t.Errorf("no note says %q: %q", want, x.Notes)
		}
	}
}

// TestShortIdle: what idles for less than --idle-for is in use.
func TestShortIdle(t *testing.T) {
	var b book
	b.add("a", "n1", h100, "v", "p", 0, 60, 50, 1)
	b.add("a", "n1", h100, "v", "p", 60, 64, 4.9, 1)
	b.add("a", "n1", h100, "v", "p", 64, 100, 5, 1)
	b.add("a", "n1", h100, "v", "p", 100, 120, 0, 1)
	o := Defaults()
	near(t, "idle", b.assess(t, o).Hours.Idle, 24.0/60)
	o.IdleFor = 5 * time.Minute
	near(t, "idle for five minutes", b.assess(t, o).Hours.Idle, 20.0/60)
}

// TestParking has four notebooks that are used for an hour each, one after another, with
// 60 GiB loaded, which do not fit a slice, nor two on a GPU. A wake wants its GPU a step
// before, and a suspend holds it for a step after the first hour.
func TestParking(t *testing.T) {
	var b book
	for i, g := range []string{"a", "b", "c", "d"} {
		for m := range 4 {
			use := 0.0
			if m == i {
				use = 90
			}
			b.add(g, "n1", h100, "ns"+g, "nb-"+g, m*60, m*60+60, use, 61440)
		}
	}
	x := b.assess(t, Defaults())
	if m := x.by("held now").Soon; m.P99 != 4 || m.Most != 4 {
		t.Errorf("held now: %+v", m)
	}
	// At first all four hold: three idle for a step until they are suspended. Then one, and
	// two in the step before each handing over and in the one after it.
	p := x.by("parking").Soon
	if p.P99 != 2 || p.Most != 4 || p.Pods != 4 {
		t.Errorf("parking: %+v", p)
	}
	near(t, "mean", p.Mean, (240.0+3+3+3)/240)
	// Cautiously they hold for 31 steps after each use, and three before their first.
	c := x.by("parking").Cautious
	near(t, "cautious mean", c.Mean, (240.0+3*31+3+3*31)/240)
	if x.Parking == nil || x.Parking.Parks != 6 || x.Parking.Wakes != 3 {
		t.Errorf("parking by the shadow: %+v", x.Parking)
	}
}

// TestSlices has eight pods that use 5 % and 8 GiB on a GPU each: seven fit on one GPU
// by MIG, whoever they are of, and the eighth needs another.
func TestSlices(t *testing.T) {
	var b book
	for i := range 8 {
		b.add(fmt.Sprint("g", i), "n1", h100, fmt.Sprint("t", i), "p", 0, 120, 9, 7500)
	}
	x := b.assess(t, Defaults())
	if m := x.by("slices"); m.Soon.Most != 2 || m.Soon.P99 != 2 || m.Soon.Pods != 8 || m.Cautious.Most != 2 {
		t.Errorf("slices: %+v", m)
	}
	if m := x.by("parking"); m.Soon.Most != 8 || m.Soon.Pods != 0 {
		t.Errorf("nothing idles: %+v", m)
	}
	if least, most := x.Needed(); least != 2 || most != 2 {
		t.Errorf("needed %d to %d", least, most)
	}
}

// TestSharing has a board without MIG: five light pods of one namespace and one of
// another take two GPUs and one.
func TestSharing(t *testing.T) {
	var b book
	for i := range 6 {
		b.add(fmt.Sprint("g", i), "n1", "NVIDIA L40S", map[bool]string{true: "one", false: "other"}[i < 5], fmt.Sprint("p", i), 0, 120, 14, 6000)
	}
	x := b.assess(t, Defaults())
	if m := x.by("sharing").Soon; m.Most != 3 || m.Pods != 6 {
		t.Errorf("sharing: %+v", m)
	}
	if m := x.by("slices").Soon; m.Most != 6 || m.Pods != 0 {
		t.Errorf("slices where there is no MIG: %+v", m)
	}
}

// TestWhole: pods of several GPUs are not divided, stay in one host, and are idle when all
// of their GPUs are.
func TestWhole(t *testing.T) {
	var b book
	for i := range 8 {
		use := 0.0
		if i == 0 {
			use = 50
		}
		b.add(fmt.Sprint("g", i), "n1", h100, "llm", "train", 0, 120, use, 100)
	}
	x := b.assess(t, Defaults())
	if least, most := x.Needed(); least != 8 || most != 8 {
		t.Errorf("needed %d to %d, want 8", least, most)
	}
	near(t, "idle", x.Hours.Idle, 14)
}

func TestNoHolders(t *testing.T) {
	var b book
	b.add("a", "n1", h100, "", "", 0, 60, 0, 10)
	b.add("a", "n1", h100, "", "", 60, 120, 90, 10)
	x := b.assess(t, Defaults())
	if x.Holders || x.Hours.Free != 0 || x.Hours.Idle != 1 || x.Hours.Busy != 1 {
		t.Errorf("without holders: %v, %+v", x.Holders, x.Hours)
	}
	if !strings.Contains(strings.Join(x.Notes, " "), "do not say which pod") {
		t.Errorf("notes: %q", x.Notes)
	}
}

// TestHosts: three pods of five GPUs take three hosts of eight, of which only the last
// may be smaller.
func TestHosts(t *testing.T) {
	c := newCrowd(&pool{host: 8})
	c.multi[5] = 3
	if got := c.need(); got != 21 {
		t.Errorf("three of five: %d GPUs, want 8 + 8 + 5", got)
	}
	c.single = 4
	if got := c.need(); got != 21 {
		t.Errorf("and four of one, which fit between: %d, want 21", got)
	}
	c.single = 7
	if got := c.need(); got != 22 {
		t.Errorf("and seven of one: %d, want 22", got)
	}
}

// TestCarve: whatever is carved is a legal layout, for every model and many mixes.
func TestCarve(t *testing.T) {
	for _, m := range gpu.Builtin() {
		if !m.HasMIG() {
			continue
		}
		g := gpu.NewGeometry(m)
		for seed := range 200 {
			counts := make([]int, len(m.Profiles))
			want := 0
			for i, p := range m.Profiles {
				if p.Attr == "" {
					counts[i] = (seed / (i + 1)) % (i + 4)
					want += counts[i]
				}
			}
			got := 0
			for _, on := range carve(g, counts) {
				got += len(on)
				if why := g.Legal(on); why != "" {
					t.Fatalf("%s, %v: %v: %s", m.Key, counts, on, why)
				}
			}
			if got != want {
				t.Fatalf("%s, %v: %d of %d slices have a place", m.Key, counts, got, want)
			}
		}
	}
}

func TestModelOf(t *testing.T) {
	models := gpu.Builtin()
	for _, x := range []struct {
		name string
		mem  float64
		want string
	}{
		{"NVIDIA H100 80GB HBM3", 0, "H100-80GB"}, {"NVIDIA A100-SXM4-40GB", 0, "A100-40GB"}, {"NVIDIA A100 80GB PCIe", 0, "A100-80GB"}, {"H100-80GB", 0, "H100-80GB"},
		{"NVIDIA H100 NVL", 95000, ""}, {"NVIDIA H100 NVL", 88000, "H100-94GB"}, {"NVIDIA H200", 0, "H200-141GB"}, {"NVIDIA L4", 0, "L4"}, {"NVIDIA L40S", 0, "L40S"},
		{"Tesla V100-SXM2-32GB", 0, "V100-32GB"}, {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 0, "RTX-PRO-6000-Blackwell"}, {"NVIDIA GeForce RTX 4090", 24000, ""}, {"", 0, ""},
	} {
		got := ""
		if m := modelOf(models, x.name, x.mem); m != nil {
			got = m.Key
		}
		if got != x.want {
			t.Errorf("%q with %g MiB: %q, want %q", x.name, x.mem, got, x.want)
		}
	}
}

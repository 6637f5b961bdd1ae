package cli

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A made-up site, drawn from a seed, whose figures are known: 64 H100s on 8 hosts, a week
// of minutes from a Monday on.
//
//	host 0    a pod that trains on all 8 GPUs from Monday to Friday, and then nobody
//	host 1    training on a GPU each, one pod after another, with nobody between
//	host 2-3  16 notebooks that are held all week and used on working days, a cell at a time
//	host 4-5  16 services that use 6 to 10 % of a GPU and 7 GiB
//	host 6    nobody
//	host 7    8 forgotten pods that use nothing; no profiling metrics; GPU 63 is not measured on Wednesday
type site struct {
	from  time.Time
	pods  []string            // by number; 0 = none
	cells [siteGPUs][]reading // by minute
}

const (
	siteGPUs    = 64
	siteMinutes = 7 * 24 * 60
	day         = 24 * 60
)

// reading is a minute of a GPU.
type reading struct {
	pod    int
	use    float64 // per cent; negative = no sample
	memMiB int
}

func makeSite(seed uint64) *site {
	s := &site{from: time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC), pods: []string{""}}
	rng := rand.New(rand.NewPCG(seed, 0xa55e55))
	for g := range s.cells {
		s.cells[g] = make([]reading, siteMinutes)
	}
	pretrain := s.pod("llm/pretrain-0")
	for g := range 8 {
		s.fill(g, 0, 5*day, reading{pretrain, 95, 70000})
	}
	for g := 8; g < 16; g++ {
		for at, n := rng.IntN(300), 0; at < siteMinutes; n++ {
			end := min(at+120+rng.IntN(1800), siteMinutes)
			s.fill(g, at, end, reading{s.pod(fmt.Sprintf("speech/train-%d-%d", g, n)), float64(75 + rng.IntN(20)), 50000})
			at = end + 30 + rng.IntN(400)
		}
	}
	for g := 16; g < 32; g++ {
		s.notebook(g, rng)
	}
	for g := 32; g < 48; g++ {
		p := s.pod(fmt.Sprintf("serving/model-%d", g))
		for at := range siteMinutes {
			s.cells[g][at] = reading{p, float64(6 + rng.IntN(5)), 7168}
		}
	}
	for g := 56; g < 64; g++ {
		s.fill(g, 0, siteMinutes, reading{s.pod(fmt.Sprintf("old/forgotten-%d", g)), 0, 1024})
	}
	s.fill(63, 2*day, 3*day, reading{0, -1, 0})
	return s
}

func (s *site) pod(name string) int {
	s.pods = append(s.pods, name)
	return len(s.pods) - 1
}

func (s *site) fill(g, from, to int, r reading) {
	for at := from; at < to; at++ {
		s.cells[g][at] = r
	}
}

// notebook has cells of 2 to 10 minutes, 20 to 120 minutes apart, from 9 to 18 on working days.
func (s *site) notebook(g int, rng *rand.Rand) {
	p := s.pod(fmt.Sprintf("vision/notebook-%d", g))
	s.fill(g, 0, siteMinutes, reading{p, 0, 46000})
	for d := range 5 {
		for at := d*day + 9*60 + rng.IntN(60); at < d*day+18*60; at += 20 + rng.IntN(100) {
			end := at + 2 + rng.IntN(8)
			s.fill(g, at, end, reading{p, float64(80 + rng.IntN(15)), 46000})
			at = end
		}
	}
}

// truth is what is known of the site, counted minute by minute.
type truth struct {
	free, idle, busy, missing int // GPU minutes
	held                      []int
	needed                    []int // by minute, parked as soon as it pays, and the services on slices
}

func (s *site) truth() truth {
	t := truth{held: make([]int, siteMinutes), needed: make([]int, siteMinutes)}
	const servicesOnSlices = 3 // 16 of a seventh
	for at := range siteMinutes {
		t.needed[at] = servicesOnSlices
		for g := range s.cells {
			x := s.cells[g][at]
			switch {
			case x.use < 0:
				t.missing++
				continue
			case x.pod == 0:
				t.free++
				continue
			case x.use < 5:
				t.idle++
			default:
				t.busy++
			}
			t.held[at]++
			if (g < 32 || g >= 48) && s.holds(g, at) {
				t.needed[at]++
			}
		}
	}
	return t
}

// holds: while it is used, for the minute after, in which it is suspended, and for the one
// before, in which it is resumed.
func (s *site) holds(g, at int) bool {
	used := func(at int) bool { return at >= 0 && at < siteMinutes && s.cells[g][at].use >= 5 }
	began := at == 0 || s.cells[g][at-1].pod != s.cells[g][at].pod
	return used(at) || used(at-1) || used(at+1) || began
}

// openMetrics writes the site as dcgm-exporter's metrics look in a Prometheus that scrapes
// it without honorLabels: pod is the exporter's, and exported_pod has the GPU.
func (s *site) openMetrics(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "site.om")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for _, m := range []struct {
		name   string
		has    func(g int) bool
		every  int
		sample func(r reading) string
	}{
		{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", func(g int) bool { return g < 56 }, 1, func(r reading) string { return fmt.Sprintf("%.2f", r.use/100) }},
		{"DCGM_FI_DEV_GPU_UTIL", func(g int) bool { return g >= 56 }, 1, func(r reading) string { return fmt.Sprintf("%.0f", r.use) }},
		{"DCGM_FI_DEV_FB_USED", func(int) bool { return true }, 5, func(r reading) string { return fmt.Sprint(r.memMiB) }},
	} {
		fmt.Fprintf(w, "# TYPE %s gauge\n", m.name)
		for g := range s.cells {
			if !m.has(g) {
				continue
			}
			labels := fmt.Sprintf(`gpu="%d",UUID="GPU-%04d",modelName="NVIDIA H100 80GB HBM3",Hostname="node-%d",pod="dcgm-exporter-%d",namespace="gpu-operator"`, g%8, g, g/8, g/8)
			for at := 0; at < siteMinutes; at += m.every {
				x := s.cells[g][at]
				if x.use < 0 {
					continue
				}
				holder := ""
				if x.pod > 0 {
					namespace, pod := filepath.Split(s.pods[x.pod])
					holder = fmt.Sprintf(`,exported_namespace=%q,exported_pod=%q`, filepath.Clean(namespace), pod)
				}
				fmt.Fprintf(w, "%s{%s%s} %s %d\n", m.name, labels, holder, m.sample(x), s.from.Unix()+int64(60*at+13))
			}
		}
	}
	fmt.Fprintln(w, "# EOF")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/work"
)

// largeWorld is 10,000 GPUs in 40 pools, 100 tenants and 100,000 tasks that have ended, with
// half of the GPUs given out and 2,000 tasks in line.
func largeWorld(b testing.TB) *world {
	w := newWorld(b, 10_000, 250, 100)
	mix := []string{"1g.10gb", "3g.40gb", "1", "2g.20gb", "1/7", "1"}
	submit := func(i int) work.TaskID {
		s := spec(i%100, mix[i%len(mix)])
		s.Pool = fmt.Sprintf("p%d", i%40)
		s.Priority = work.Priority(i % 3)
		s.Class = []work.Class{work.Training, work.Inference, work.Interactive}[i/3%3]
		id, err := w.do(engine.Submit{Spec: s})
		if err != nil {
			b.Fatal(err)
		}
		return id
	}
	for i := range 100_000 {
		id := submit(i)
		w.now += second / 100
		w.answer(all)
		w.now += second / 100
		for l := w.e.Task(id).Lease(); l != nil; l = nil {
			w.tell(engine.ProcessExited{Owner: work.Owner{Task: id, Epoch: l.Epoch}, Exit: work.Exit{Code: i % 2}})
		}
		w.answer(all)
		if i%1000 == 0 {
			w.m.drain()
		}
	}
	for i := range 9_000 {
		submit(i)
		w.answer(all)
	}
	for i := range 2_000 { // what no pool has room for
		s := spec(i%100, "8")
		s.Pool, s.Request.Members = fmt.Sprintf("p%d", i%40), 31
		if _, err := w.do(engine.Submit{Spec: s}); err != nil {
			b.Fatal(err)
		}
	}
	w.show(0.5)
	w.m.drain()
	return w
}

// BenchmarkScrape measures one answer of /metrics at the size that it is meant for, each
// time of another view.
func BenchmarkScrape(b *testing.B) {
	w := largeWorld(b)
	text := w.m.scrape(b, "")
	series := 0
	for l := range strings.Lines(text) {
		if !strings.HasPrefix(l, "#") {
			series++
		}
	}
	for _, x := range []struct{ name, accept string }{
		{"text", ""},
		{"openmetrics", "application/openmetrics-text; version=1.0.0"},
		{"protobuf", "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"},
	} {
		for _, zip := range []string{"plain", "gzip"} {
			b.Run(x.name+"/"+zip, func(b *testing.B) {
				srv := httptest.NewServer(w.m.Handler())
				defer srv.Close()
				size := 0
				for b.Loop() {
					w.show(0.5)
					size = fetch(b, srv.URL, x.accept, zip)
				}
				b.ReportMetric(float64(series), "series")
				b.ReportMetric(float64(size), "bytes")
			})
		}
	}
}

func fetch(b *testing.B, url, accept, zip string) int {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", map[string]string{"plain": "identity", "gzip": "gzip"}[zip])
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return int(n)
}

// BenchmarkFacts measures what the facts of one task's life cost: to the writer, which
// appends them, and to the goroutine that counts them.
func BenchmarkFacts(b *testing.B) {
	w := newWorld(b, 64, 64, 4)
	life := func() {
		id, _ := w.do(engine.Submit{Spec: spec(0, "1")})
		w.answer(all)
		w.tell(engine.ProcessExited{Owner: work.Owner{Task: id, Epoch: 1}})
		w.answer(all)
	}
	life()
	w.m.drain()
	life()
	w.m.pending.mu.Lock()
	commits := w.m.pending.commits
	w.m.pending.mu.Unlock()
	facts := 0
	for _, c := range commits {
		facts += len(c.Events)
	}
	w.m.drain()
	b.Run("tell", func(b *testing.B) {
		for b.Loop() {
			for _, c := range commits {
				w.m.Commit(c)
			}
			if len(w.m.pending.commits) > 4096 {
				w.m.pending.commits = w.m.pending.commits[:0]
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(facts), "ns/fact")
	})
	w.m.pending.commits = nil
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			for i := range commits {
				w.m.tracker.commit(&commits[i])
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(facts), "ns/fact")
	})
}

package api_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// TestMap draws what alice holds, for her and for bob.
func TestMap(t *testing.T) {
	w := start(t, options{shape: "1x2xH100-80GB"})
	mig := w.running(w.alice, apitype.TaskSpec{GPUs: "2g.20gb"})
	whole := w.running(w.alice, apitype.TaskSpec{GPUs: "1"})
	var rows, others [][]int64
	w.poll("both are drawn with their use", func() bool {
		m, err := w.alice.Map(t.Context())
		ok(t, err)
		if m.Seq == 0 || len(m.GPUs) != 2 || len(m.Hosts) != 1 || m.Models[m.GPUs[0].Model].Name != "H100-80GB" || m.Pools[m.Hosts[0].Pool] != "main" {
			t.Fatalf("the map is %+v", m)
		}
		rows = nil
		known := true
		for _, g := range m.GPUs {
			for _, s := range g.Slices {
				known = known && s[8] >= 0
				rows = append(rows, s)
			}
		}
		return len(rows) == 2 && known
	})
	bobs, err := w.bob.Map(t.Context())
	ok(t, err)
	for _, g := range bobs.GPUs {
		others = append(others, g.Slices...)
	}
	start, units := rows[0][5], rows[0][6]
	if units != 2 {
		t.Errorf("2g.20gb takes %d units, want 2", units)
	}
	want := [][]int64{{int64(mig.ID), 1, 0, 0, 1, start, 2, rows[0][7], rows[0][8]}, {int64(whole.ID), 1, 0, 0, 0, 0, 0, 1000, rows[1][8]}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("alice sees (-want +got)\n%s", diff)
	}
	want = [][]int64{{0, 0, 0, -1, 1, start, 2, rows[0][7], -1}, {0, 0, 0, -1, 0, 0, 0, 1000, -1}}
	if diff := cmp.Diff(want, others); diff != "" {
		t.Errorf("bob sees (-want +got)\n%s", diff)
	}
}

// TestGzip wants JSON in gzip for those who take it, and nothing else.
func TestGzip(t *testing.T) {
	w := start(t, options{})
	for _, c := range []struct {
		method, path, accept, want string
	}{
		{"GET", "/v1/map", "gzip", "gzip"}, {"GET", "/v1/gpus", "br, gzip;q=0.5", "gzip"},
		{"GET", "/v1/map", "", ""}, {"GET", "/v1/map", "br", ""}, {"GET", "/v1/map", "gzip;q=0", ""}, {"GET", "/v1/map", "gzip; q=0.0", ""},
		{"POST", "/v1/tenants/alice/tokens", "gzip", ""}, {"GET", "/v1/events", "gzip", ""}, {"GET", "/v1/tasks/99", "gzip", ""}, {"HEAD", "/v1/map", "gzip", ""},
	} {
		header := []string{"Accept-Encoding", c.accept}
		if c.accept == "" {
			header[1] = "identity"
		}
		a := w.call(w.adminToken, c.method, c.path, "", header...)
		if got := a.header.Get("Content-Encoding"); got != c.want {
			t.Errorf("%s %s with Accept-Encoding %q: encoded as %q, want %q", c.method, c.path, c.accept, got, c.want)
		}
		if a.header.Get("Vary") != "Accept-Encoding" && a.status != http.StatusNotFound {
			t.Errorf("%s %s: Vary is %q, want Accept-Encoding", c.method, c.path, a.header.Get("Vary"))
		}
	}
}

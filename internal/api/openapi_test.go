package api_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpupool/gpupool/internal/api/client"
)

var update = flag.Bool("update", false, "rewrite docs/openapi.yaml")

const kept = "../../docs/openapi.yaml"

// TestDocument holds the document in the repository against the one that is served.
func TestDocument(t *testing.T) {
	w := start(t, options{})
	got := w.call("", "GET", "/openapi.yaml", "").body
	if *update {
		ok(t, os.WriteFile(kept, []byte(got), 0o644))
	}
	want, err := os.ReadFile(kept)
	ok(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/openapi.yaml is not what is served: go test ./internal/api -update (-kept +served)\n%s", diff)
	}
}

func gpuQuery() client.GPUQuery { return client.GPUQuery{} }

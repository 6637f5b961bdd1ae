package archtest

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	named    = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestThreats: each threat of docs/security.md names tests, and each that is named is there.
func TestThreats(t *testing.T) {
	root := os.DirFS("../..")
	there := map[string]bool{}
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := fs.ReadFile(root, path)
		for _, m := range declared.FindAllStringSubmatch(string(b), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := fs.ReadFile(root, "docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## Threats\n")
	table, _, _ := strings.Cut(rest, "\n## ")
	threats := 0
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| threat") || strings.HasPrefix(row, "| ---") {
			continue
		}
		threats++
		tests := named.FindAllStringSubmatch(row, -1)
		if len(tests) == 0 {
			t.Errorf("no test is named for this threat: %s", row)
		}
		for _, m := range tests {
			if !there[m[1]] {
				t.Errorf("docs/security.md names %s, which is not there: %s", m[1], row)
			}
		}
	}
	if threats < 20 {
		t.Errorf("%d threats were found in docs/security.md: has the table another shape now?", threats)
	}
}

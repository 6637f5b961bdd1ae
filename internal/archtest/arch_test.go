package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// rules are all that is checked, by the name a planted archive uses for it.
var rules = []struct {
	name  string
	check func(*tree) []violation
}{
	{"imports", checkImports},
	{"pure", checkPure},
	{"comment", checkComments},
	{"name", checkNames},
	{"init", checkInit},
	{"size", checkSize},
}

// TestModule holds the module's own source to every rule.
func TestModule(t *testing.T) {
	tr, err := parseTree(os.DirFS("../.."), hard)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(tr.pkgs, func(p *pkg) bool { return p.path == "archtest" }) {
		t.Fatal("the tree does not contain archtest itself: is ../.. still the module's root?")
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, v := range r.check(tr) {
				t.Error(v)
			}
		})
	}
	tr.limits = soft
	for _, v := range checkSize(tr) {
		t.Logf("soft limit: %s", v)
	}
}

// TestRulesBite runs every rule over each archive of planted sources and wants exactly the violations it names.
func TestRulesBite(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	bitten := map[string]bool{}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			want, fsys := readArchive(t, name)
			tr, err := parseTree(fsys, limits{file: 40, function: 16})
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, r := range rules {
				for _, v := range r.check(tr) {
					fmt.Fprintf(&got, "[%s] %s\n", r.name, v)
					bitten[r.name] = true
				}
			}
			if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got.String(), "\n")); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
	for _, r := range rules {
		if !bitten[r.name] {
			t.Errorf("no archive in testdata shows that rule %s bites: add one", r.name)
		}
	}
}

// readArchive returns the archive's file "want" and all others as a file system.
func readArchive(t *testing.T, name string) (want string, fsys fs.FS) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
	if i < 0 {
		t.Fatalf("%s has no file named want", name)
	}
	want = string(archive.Files[i].Data)
	archive.Files = slices.Delete(archive.Files, i, i+1)
	fsys, err = txtar.FS(archive)
	if err != nil {
		t.Fatal(err)
	}
	return want, fsys
}

// TestTable checks the import table itself: each package once, each with a reason, each import a row, all layers kept.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.pkg] {
			t.Errorf("%s has two rows", r.pkg)
		}
		seen[r.pkg] = true
		if r.because == "" {
			t.Errorf("%s has no reason", r.pkg)
		}
		for imported := range strings.FieldsSeq(r.may) {
			to, known := rowOf(imported)
			switch {
			case imported == "*":
			case !known:
				t.Errorf("%s may import %s, which has no row", r.pkg, imported)
			case isSuite(imported):
				t.Errorf("%s may import %s, which is for tests", r.pkg, imported)
			case r.layer == core && to.layer != core:
				t.Errorf("%s may import %s: the core imports only the core", r.pkg, imported)
			case r.layer == port && to.layer != core && to.layer != port:
				t.Errorf("%s may import %s: a port imports only the core and its port", r.pkg, imported)
			}
		}
	}
}

package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

const modulePath = "github.com/gpupool/gpupool"

// tree is the parsed source of the module, or of a planted archive.
type tree struct {
	fset   *token.FileSet
	pkgs   []*pkg // by path
	limits limits
	std    types.Importer
	typed  map[string]*checked
}

// pkg is one folder with Go files. All files count, whatever their build constraints: a rule holds on every platform.
type pkg struct {
	dir   string // from the module's root, "internal/driver/fake"
	path  string // dir without "internal/", as in the table
	files []*file
}

type file struct {
	syntax *ast.File
	test   bool
}

// checked is what the type checker found out about a package's product files.
type checked struct {
	pkg  *types.Package
	info *types.Info
}

// violation is one place that breaks a rule.
type violation struct {
	where string // file:line, or a folder
	what  string
}

func (v violation) String() string { return v.where + ": " + v.what }

// product returns the files that are not tests.
func (p *pkg) product() []*file {
	return slices.DeleteFunc(slices.Clone(p.files), func(f *file) bool { return f.test })
}

// at is a violation at a place in the source.
func (t *tree) at(pos token.Pos, format string, args ...any) violation {
	p := t.fset.Position(pos)
	return violation{where: fmt.Sprintf("%s:%d", p.Filename, p.Line), what: fmt.Sprintf(format, args...)}
}

// parseTree reads every Go file below a module's root, except test data, hidden folders and nested modules.
// It walks the files itself instead of asking the go command, so that test caching sees what it read.
func parseTree(fsys fs.FS, l limits) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), limits: l, typed: map[string]*checked{}}
	byDir := map[string]*pkg{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(fsys, name)
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ignored(syntax) {
			return nil
		}
		dir := path.Dir(name)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir, path: strings.TrimPrefix(dir, "internal/")}
			t.pkgs = append(t.pkgs, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, &file{syntax: syntax, test: strings.HasSuffix(name, "_test.go")})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.pkgs, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	t.std, err = newStd(t.pkgs)
	return t, err
}

// skipDir skips what the go command skips: test data, hidden folders and nested modules.
func skipDir(fsys fs.FS, dir string) error {
	if dir == "." {
		return nil
	}
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// ignored tells whether a file is a script that belongs to no package ("//go:build ignore").
func ignored(f *ast.File) bool {
	return slices.ContainsFunc(f.Comments, func(g *ast.CommentGroup) bool {
		return g.Pos() < f.Package && g.List[0].Text == "//go:build ignore"
	})
}

// typesOf type-checks the product files of a package. Errors are left to the compiler: files of different build
// constraints are checked together, so some are expected. What has no type because of one is invalid.
func (t *tree) typesOf(p *pkg) *types.Info { return t.check(p).info }

func (t *tree) check(p *pkg) *checked {
	if done := t.typed[p.path]; done != nil {
		return done
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	t.typed[p.path] = &checked{info: info} // for now: an import cycle ends here
	var files []*ast.File
	for _, f := range p.product() {
		files = append(files, f.syntax)
	}
	conf := types.Config{Importer: t, Error: func(error) {}}
	tp, _ := conf.Check(modulePath+"/"+p.dir, t.fset, files, info) // errors: see typesOf
	t.typed[p.path].pkg = tp
	return t.typed[p.path]
}

// Import implements types.Importer: packages of the module from their parsed files, all others from the standard library.
func (t *tree) Import(path string) (*types.Package, error) {
	internal, ours := modulePackage(path)
	switch {
	case !ours && strings.Contains(path, "."):
		return nil, fmt.Errorf("%s is third-party: the core uses none", path)
	case !ours:
		return t.std.Import(path)
	}
	i := slices.IndexFunc(t.pkgs, func(p *pkg) bool { return p.path == internal })
	if i < 0 {
		return nil, fmt.Errorf("no package %s in the tree", path)
	}
	if done := t.check(t.pkgs[i]); done.pkg != nil {
		return done.pkg, nil
	}
	return nil, fmt.Errorf("%s is part of an import cycle", path)
}

// newStd returns an importer of the standard library packages that the tree's core imports. It reads what the compiler
// exported, which is far quicker than type-checking their source.
func newStd(pkgs []*pkg) (types.Importer, error) {
	args := []string{"list", "-export", "-f", "{{.ImportPath}} {{.Export}}", "fmt"}
	for _, p := range pkgs {
		if !isCore(p.path) {
			continue
		}
		for _, f := range p.product() {
			for _, spec := range f.syntax.Imports {
				if name := importPath(spec); !strings.Contains(name, ".") && name != "C" {
					args = append(args, name)
				}
			}
		}
	}
	list := exec.Command("go", args...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", list, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, export, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[name] = export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(exports[name])
	}), nil
}

// importPath returns the path that spec imports.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser has checked it
	}
	return p
}

// modulePackage returns the table's name of an import path, and whether it is one of this module's.
func modulePackage(importPath string) (name string, ours bool) {
	rest, ours := strings.CutPrefix(importPath, modulePath+"/")
	return strings.TrimPrefix(rest, "internal/"), ours
}

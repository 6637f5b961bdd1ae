package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// limits are the most lines a product file and a function may have.
type limits struct{ file, function int }

var (
	hard = limits{file: 600, function: 100} // fails
	soft = limits{file: 400, function: 60}  // is printed: time to look at the shape
)

// vagueNames are package names that say nothing about what is inside.
var vagueNames = strings.Fields("util utils common helper helpers manager types models misc shared base lib")

// sentenceEnd matches the end of a sentence, but not of "e.g." or "i.e." in its middle.
var sentenceEnd = regexp.MustCompile(`[A-Za-z0-9)\]"'` + "`" + `]{2,}[.!?](\s|$)`)

// checkComments wants a package comment of two sentences or more: what it is for, and how its cost grows.
func checkComments(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		var docs []string
		for _, f := range p.product() {
			if f.syntax.Doc != nil {
				docs = append(docs, f.syntax.Doc.Text())
			}
		}
		sentences := len(sentenceEnd.FindAllString(strings.Join(docs, "\n"), -1))
		if len(p.product()) > 0 && sentences < 2 {
			found = append(found, violation{where: p.dir, what: fmt.Sprintf(
				"sentences in the package comment: %d, wanted 2 or more (what it is for, how its cost grows with the cluster)", sentences)})
		}
	}
	return found
}

// checkNames wants package names that say something, and the folder's name to be the package's.
func checkNames(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		for _, f := range p.product() {
			switch name := f.syntax.Name.Name; {
			case slices.Contains(vagueNames, name):
				found = append(found, t.at(f.syntax.Package, "package name %s says nothing: name it after what it provides", name))
			case name != "main" && name != path.Base(p.dir):
				found = append(found, t.at(f.syntax.Package, "package %s in folder %s: give both one name", name, p.dir))
			}
		}
	}
	return found
}

// checkInit wants no init functions: what a program does at start is read in main, and importing has no effect.
func checkInit(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		for _, f := range p.product() {
			for _, fn := range functions(f) {
				if fn.Recv == nil && fn.Name.Name == "init" {
					found = append(found, t.at(fn.Pos(), "func init: importing a package must do nothing, call it from main"))
				}
			}
		}
	}
	return found
}

// checkSize wants no product file and no function over the tree's limits. Generated files are free.
func checkSize(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		for _, f := range p.product() {
			if ast.IsGenerated(f.syntax) {
				continue
			}
			if lines := t.fset.File(f.syntax.FileStart).LineCount(); lines > t.limits.file {
				found = append(found, t.at(f.syntax.FileStart, "file of %d lines, limit %d: the shape is wrong, not the limit", lines, t.limits.file))
			}
			for _, fn := range functions(f) {
				lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
				if lines > t.limits.function {
					found = append(found, t.at(fn.Pos(), "function %s of %d lines, limit %d: the shape is wrong, not the limit",
						fn.Name.Name, lines, t.limits.function))
				}
			}
		}
	}
	return found
}

// functions returns the functions and methods a file declares.
func functions(f *file) (fns []*ast.FuncDecl) {
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			fns = append(fns, fn)
		}
	}
	return fns
}

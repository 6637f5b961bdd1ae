package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// impureImports are what product code of a core package may not import, with what it would bring in.
// A name covers the packages below it: "os" is also os/exec and os/signal.
var impureImports = map[string]string{
	"os":           "the world outside",
	"net":          "the world outside",
	"syscall":      "the world outside",
	"unsafe":       "memory that the compiler does not check",
	"sync":         "locks: the core has one caller",
	"context":      "cancellation: a step is never interrupted",
	"math/rand":    "chance: pass a seed or a number in",
	"crypto/rand":  "chance: pass a seed or a number in",
	"hash/maphash": "chance: its seed differs in every process",
	"log":          "output: return facts and reasons, the host logs them",
}

// impureFuncs are the functions no core package may use, by package. Other uses of these packages are fine.
var impureFuncs = map[string]struct{ names, because string }{
	"time": {"Now Since Until Sleep After AfterFunc NewTimer NewTicker Tick", "reads the clock: time enters the core as now"},
	"fmt":  {"Print Printf Println Scan Scanf Scanln", "does input or output: return facts and reasons"},
}

// checkPure holds the product code of the core packages to: same state and same input, same output.
func checkPure(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		if !isCore(p.path) {
			continue
		}
		info := t.typesOf(p)
		for _, f := range p.product() {
			c := purity{tree: t, info: info, file: f}
			for _, spec := range f.syntax.Imports {
				c.importSpec(spec)
			}
			sorted := map[ast.Node]bool{} // arguments of slices.Sorted and its kin
			ast.Inspect(f.syntax, func(n ast.Node) bool { c.node(n, sorted); return true })
			found = append(found, c.found...)
		}
	}
	return found
}

// purity looks for what is impure in one file of the core.
type purity struct {
	*tree
	info  *types.Info
	file  *file
	found []violation
}

func (c *purity) report(pos token.Pos, format string, args ...any) {
	c.found = append(c.found, c.at(pos, format, args...))
}

func (c *purity) importSpec(spec *ast.ImportSpec) {
	path := importPath(spec)
	for banned, because := range impureImports {
		if path == banned || strings.HasPrefix(path, banned+"/") {
			c.report(spec.Pos(), "the core may not import %s, %s", path, because)
		}
	}
}

func (c *purity) node(n ast.Node, sorted map[ast.Node]bool) {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n.Pos(), "go statement: the core has no goroutines, return a command and let the host do the work")
	case *ast.SelectStmt:
		c.report(n.Pos(), "select statement: it picks among ready channels by chance")
	case *ast.RangeStmt:
		c.rangeStmt(n)
	case *ast.CallExpr:
		if pkg, name := c.callee(n); pkg == "slices" && strings.HasPrefix(name, "Sorted") && len(n.Args) > 0 {
			sorted[n.Args[0]] = true
		}
		if pkg, name := c.callee(n); pkg == "maps" && (name == "Keys" || name == "Values" || name == "All") && !sorted[n] && !c.excused(n.Pos()) {
			c.report(n.Pos(), "maps.%s in random order: wrap it in slices.Sorted, or say why the order is harmless in a comment \"// order: …\"", name)
		}
	case *ast.Ident:
		if pkg, name := c.function(n); strings.Contains(" "+impureFuncs[pkg].names+" ", " "+name+" ") && name != "" {
			c.report(n.Pos(), "%s.%s %s", pkg, name, impureFuncs[pkg].because)
		}
	}
}

// rangeStmt flags a loop over a map unless a comment says why its order is harmless.
func (c *purity) rangeStmt(n *ast.RangeStmt) {
	switch t := c.info.TypeOf(n.X); {
	case t == nil || t == types.Typ[types.Invalid]:
		c.report(n.Pos(), "cannot tell what is ranged over here (does the package compile?), so cannot tell that it is not a map")
	case overMap(t) && !c.excused(n.Pos()):
		c.report(n.Pos(), "range over a map, in random order: range over sorted keys, or say why the order is harmless in a comment \"// order: …\"")
	}
}

// overMap tells whether t is a map, or a type parameter that may stand for one.
func overMap(t types.Type) bool {
	if param, ok := t.(*types.TypeParam); ok {
		constraint, _ := param.Constraint().Underlying().(*types.Interface)
		for embedded := range constraint.EmbeddedTypes() {
			if mayBeMap(embedded) {
				return true
			}
		}
		return false
	}
	_, isMap := t.Underlying().(*types.Map)
	return isMap
}

// mayBeMap tells whether one of the types that a constraint's element (~map[K]V, or A | B) lists is a map.
func mayBeMap(element types.Type) bool {
	union, ok := element.(*types.Union)
	if !ok {
		return overMap(element)
	}
	for term := range union.Terms() {
		if overMap(term.Type()) {
			return true
		}
	}
	return false
}

// excused tells whether the line of pos or the line above carries a comment "// order: why".
func (c *purity) excused(pos token.Pos) bool {
	line := c.fset.Position(pos).Line
	for _, group := range c.file.syntax.Comments {
		for _, comment := range group.List {
			why, ok := strings.CutPrefix(comment.Text, "// order: ")
			at := c.fset.Position(comment.Pos()).Line
			if ok && strings.TrimSpace(why) != "" && (at == line || at == line-1) {
				return true
			}
		}
	}
	return false
}

// callee returns the package and name of the function that n calls, if it is a package's function.
func (c *purity) callee(n *ast.CallExpr) (pkg, name string) {
	fun := ast.Unparen(n.Fun)
	switch indexed := fun.(type) {
	case *ast.IndexExpr:
		fun = indexed.X
	case *ast.IndexListExpr:
		fun = indexed.X
	}
	switch fun := fun.(type) {
	case *ast.Ident:
		return c.function(fun)
	case *ast.SelectorExpr:
		return c.function(fun.Sel)
	}
	return "", ""
}

// function returns the package and name of the function that id stands for, whatever the import is called; empty for
// methods, variables and types.
func (c *purity) function(id *ast.Ident) (pkg, name string) {
	fn, ok := c.info.Uses[id].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return "", ""
	}
	return fn.Pkg().Path(), fn.Name()
}

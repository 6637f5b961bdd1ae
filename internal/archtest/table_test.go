package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// layer says what a package is, as in DESIGN.md: the core decides, a shell drives it, a port is an interface with one
// conformance suite, an edge speaks to the outside, and main wires them.
type layer string

const (
	core  layer = "core"
	shell layer = "shell"
	port  layer = "port"
	edge  layer = "edge"
	root  layer = "main"
)

// row is one line of the import table. Packages are named by their folder, without "internal/".
type row struct {
	pkg     string
	layer   layer
	may     string // the packages of this module that pkg's product code may import; "*" for any
	because string
}

// table is who may import whom. A row may stand here before its package exists. Tests are freer: they may import any
// package of the module.
var table = []row{
	{"gpu", core, "", "hardware words stand alone"},
	{"work", core, "gpu", "demand is asked for in hardware words"},
	{"placement", core, "gpu work", "fits requests onto GPUs; who is next is not its business"},
	{"queue", core, "gpu work", "orders tasks; where they fit is not its business"},
	{"forecast", core, "gpu work", "predicts from finished tasks alone"},
	{"elastic", core, "gpu work placement queue forecast", "weighs what waits against what runs"},
	{"books", core, "work", "adds up what was held; what a report makes of it is an edge's business"},
	{"engine", core, "gpu work placement queue forecast elastic books", "the only package that composes the core"},

	{"driver", port, "gpu work", "says what a set of GPUs can do, in core words"},
	{"driver/drivertest", port, "driver gpu work", "the suite every driver passes"},
	{"driver/fake", edge, "driver gpu work", "an adapter knows its port and nothing else"},
	{"driver/nvidia", edge, "driver gpu work", "an adapter knows its port and nothing else; the only cgo"},
	{"runner", port, "work", "says how a task runs"},
	{"runner/runnertest", port, "runner work", "the suite every runner passes"},
	{"runner/cdi", edge, "", "the format of device specs; what is in them is a runner's business"},
	{"runner/process", edge, "runner runner/cdi work secrets", "an adapter knows its port, how a container is told its devices, and where the values lie that a program is given"},
	{"runner/podman", edge, "runner runner/cdi runner/process work", "says how a container is made; the shim above it is that of processes"},
	{"runner/podman/podmantest", port, "", "a podman of their own for the tests of three packages"},
	{"journal", port, "", "stores bytes in order; what they mean is the host's business"},
	{"journal/journaltest", port, "journal", "the suite every journal passes"},
	{"journal/memory", edge, "journal", "an adapter knows its port and nothing else"},
	{"journal/bolt", edge, "journal", "an adapter knows its port and nothing else"},
	{"journal/portable", edge, "journal", "a journal as a file to carry about; what the bytes mean is the host's business"},
	{"journal/redis", edge, "journal", "an adapter knows its port and nothing else"},
	{"journal/redis/redistest", edge, "", "starts real servers for tests"},

	{"host", shell, "engine gpu work driver runner journal", "the single writer: core and ports, no concrete one"},
	{"sheet", edge, "", "the frame and the plots of reports; what they say is not its business"},
	{"trace", edge, "", "reads files into its own rows"},
	{"sim", shell, "host engine books elastic gpu work placement queue driver driver/fake runner journal journal/memory sheet trace",
		"the same host and engine, on fake hardware in virtual time"},
	{"storm", shell, "host engine gpu work driver driver/fake runner journal/memory",
		"the same writer, engine and dispatcher, with everything around them made to fail"},
	{"assess", edge, "elastic gpu sheet work", "reads another's monitoring; what it finds idle and what fits it says by the core's own rules"},
	{"baseline", edge, "", "published placement rules, to compare with; the product itself never uses them"},
	{"bench", shell, "baseline sim host engine placement queue gpu work driver driver/fake sheet trace", "measures the core against published rules and itself"},

	{"auth", edge, "work", "says who someone is that others vouch for, in the core's roles"},
	{"audit", edge, "api/apitype", "appends lines about calls, and reads them; what they mean is the API's business"},
	{"secrets", edge, "work", "files of values by the core's rule of their names"},
	{"api", edge, "host engine books gpu work runner api/apitype audit auth secrets", "the server side: asks the host, shows the engine's view"},
	{"api/apitype", edge, "gpu work", "what goes over the wire, for both sides"},
	{"api/client", edge, "api/apitype gpu work", "the Go service type every other edge uses"},
	{"web", edge, "api/client api/apitype gpu work", "a client of the API, never of the engine"},
	{"top", edge, "api/client api/apitype work", "a client of the API, never of the engine; the command line lends it its words"},
	{"loadtest", edge, "api/client api/apitype", "a client of the API like any other: what it measures is what clients get"},
	{"metrics", edge, "host engine gpu work driver", "watches the host's facts and views, and what drivers answer; nothing asks it"},
	{"tracing", edge, "host engine work", "turns published facts into spans; nobody waits for it"},
	{"checkpoint", edge, "", "speaks to the driver library in a process of its own; who runs it is main's business"},
	{"scaleout", edge, "", "runs a hook; who needs more and when is the engine's business"},
	{"doctor", edge, "gpu", "looks at a machine and judges; what NVML, the server and the journal say is lent by main, the boards by the core"},
	{"systemd", edge, "", "notifications and a unit file; what a server is doing is main's to say"},
	{"config", edge, "gpu work", "settings in core words; wiring is main's"},
	{"cli", edge, "api/client api/apitype assess config deploy/prometheus doctor sheet sim bench storm loadtest systemd trace top work gpu", "a client of the API, never of engine, host or a driver"},
	{"cmd/gpupool", root, "*", "the only place that names concrete drivers, runners and stores"},
	{"deploy/prometheus", edge, "", "rules as a text, so that the command line can print them"},
	{"binarytest", edge, "", "builds the binary for tests that start it"},
	{"archtest", edge, "", "reads source text, links nothing"},
}

// rowOf returns the table's row for a package.
func rowOf(pkg string) (row, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return r.pkg == pkg })
	if i < 0 {
		return row{}, false
	}
	return table[i], true
}

// isCore tells whether the package decides, and so must be pure.
func isCore(pkg string) bool {
	r, ok := rowOf(pkg)
	return ok && r.layer == core
}

// isSuite tells whether the package is a conformance suite (driver/drivertest), which stands below its port: made for
// tests, never for the product.
func isSuite(pkg string) bool { return strings.HasSuffix(pkg, "test") && strings.Contains(pkg, "/") }

// allows tells whether the product code of r.pkg may import the module's package imported.
func (r row) allows(imported string) bool {
	if r.may == "*" {
		return !isSuite(imported)
	}
	return slices.Contains(strings.Fields(r.may), imported)
}

// checkImports holds every package against the table, and the core's third-party imports against thirdParty.
func checkImports(t *tree) (found []violation) {
	for _, p := range t.pkgs {
		r, known := rowOf(p.path)
		if !known {
			found = append(found, violation{where: p.dir, what: fmt.Sprintf(
				"package %s is not in the import table of internal/archtest/table_test.go: add it to the table and say why", p.path)})
			continue
		}
		for _, f := range p.files {
			found = append(found, t.checkFileImports(r, f)...)
		}
	}
	return found
}

// checkFileImports checks the imports of one file of r's package.
func (t *tree) checkFileImports(r row, f *file) (found []violation) {
	for _, spec := range f.syntax.Imports {
		path := importPath(spec)
		internal, ours := modulePackage(path)
		switch {
		case path == "C" && r.pkg != "driver/nvidia":
			found = append(found, t.at(spec.Pos(), "cgo outside driver/nvidia: the rest builds with CGO_ENABLED=0 and cross-compiles"))
		case f.test:
		case ours && !r.allows(internal):
			found = append(found, t.at(spec.Pos(), "%s may not import %s: %s (table in internal/archtest/table_test.go)",
				r.pkg, internal, r.because))
		case !ours && r.layer == core && strings.Contains(path, "."):
			found = append(found, t.at(spec.Pos(), "core package %s imports third-party %s: the core is the standard library and itself", r.pkg, path))
		}
	}
	return found
}

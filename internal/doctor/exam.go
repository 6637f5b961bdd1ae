package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/gpu"
)

// exam is one run: what was found at its start, for the checks to judge.
type exam struct {
	ctx context.Context
	o   Options

	loaded  string // version of the loaded kernel module; empty: none
	pci     []string
	gpus    []GPU
	asked   Hardware // what NVML or nvidia-smi said
	nvmlErr error
	status  status
	procs   []proc

	disked    Disk
	diskErr   error
	url       string // of the server
	serverErr error  // nil: it answers; errNoServer: there is none
}

// errNoServer is why a server does not answer that never ran.
var errNoServer = errors.New("no server has used the data folder yet")

// status is what the kernel says of this process.
type status struct {
	uid  int
	caps uint64
}

// proc is a process that matters here.
type proc struct {
	pid   int
	name  string   // of its program
	nodes []string // NVIDIA device nodes that it has open
}

func newExam(ctx context.Context, o Options) *exam {
	e := &exam{ctx: ctx, o: o}
	e.loaded = driverVersion(e.text("proc/driver/nvidia/version"))
	e.pci = e.nvidiaPCI()
	e.status = readStatus(e.text("proc/self/status"))
	e.procs = e.processes()
	e.askHardware()
	if o.Data != "" {
		e.disked, e.diskErr = o.System.Disk(o.Data)
	}
	if e.serverErr = errNoServer; o.Server != nil {
		e.url, e.serverErr = o.Server(ctx)
	}
	return e
}

// askHardware takes what NVML says, else nvidia-smi, else the kernel module's own files.
func (e *exam) askHardware() {
	if e.o.Hardware != nil {
		if e.asked, e.nvmlErr = e.o.Hardware(e.ctx); e.nvmlErr == nil {
			e.asked.Source = cmp.Or(e.asked.Source, "NVML")
			e.gpus = e.asked.GPUs
			fill(e.gpus, e.nvidiaSMI().GPUs)
			return
		}
	}
	if e.asked = e.nvidiaSMI(); len(e.asked.GPUs) > 0 {
		e.gpus = e.asked.GPUs
		return
	}
	e.gpus = e.procGPUs()
}

// fill adds what the others know of the same GPUs.
func fill(gpus, others []GPU) {
	for i := range gpus {
		g := &gpus[i]
		if k := slices.IndexFunc(others, func(o GPU) bool { return o.UUID == g.UUID }); k >= 0 {
			o := others[k]
			g.MemoryMiB = cmp.Or(g.MemoryMiB, o.MemoryMiB)
			g.MIG, g.MIGPending = cmp.Or(g.MIG, o.MIG), cmp.Or(g.MIGPending, o.MIGPending)
			g.Persistence, g.ECC = cmp.Or(g.Persistence, o.Persistence), cmp.Or(g.ECC, o.ECC)
		}
	}
}

// driverName is the version of the driver, whoever says it.
func (e *exam) driverName() string { return cmp.Or(e.asked.Driver, e.loaded) }

var versionText = regexp.MustCompile(`\b\d{3}\.\d+(\.\d+)*\b`)

func driverVersion(s string) string { return versionText.FindString(oneLine(s)) }

// nvidiaPCI lists NVIDIA's display devices on the bus, by address.
func (e *exam) nvidiaPCI() (found []string) {
	for _, dir := range e.glob("sys/bus/pci/devices/*") {
		if strings.TrimSpace(e.text(dir+"/vendor")) == "0x10de" && strings.HasPrefix(e.text(dir+"/class"), "0x03") {
			found = append(found, path.Base(dir))
		}
	}
	return found
}

// procGPUs reads what the kernel module shows of its GPUs.
func (e *exam) procGPUs() (gpus []GPU) {
	for i, file := range e.glob("proc/driver/nvidia/gpus/*/information") {
		g := GPU{Index: i, Minor: i}
		for line := range strings.Lines(e.text(file)) {
			k, v, _ := strings.Cut(line, ":")
			switch v = strings.TrimSpace(v); strings.TrimSpace(k) {
			case "Model":
				g.Name = v
			case "GPU UUID":
				g.UUID = v
			case "Device Minor":
				if n, err := strconv.Atoi(v); err == nil {
					g.Minor = n
				}
			}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// smiFields are what nvidia-smi is asked for, in order.
var smiFields = []string{"index", "name", "uuid", "driver_version", "memory.total", "mig.mode.current", "mig.mode.pending", "persistence_mode", "ecc.mode.current"}

// nvidiaSMI asks the tool that comes with the driver: no minor numbers, instances or
// recovery action, and better than nothing.
func (e *exam) nvidiaSMI() (h Hardware) {
	if e.which("nvidia-smi") == "" || e.loaded == "" {
		return h
	}
	out, err := e.o.System.Run(e.ctx, "nvidia-smi", "--query-gpu="+strings.Join(smiFields, ","), "--format=csv,noheader,nounits")
	if err != nil {
		e.nvmlErr = cmp.Or(e.nvmlErr, err)
		return h
	}
	h.Source = "nvidia-smi"
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) != len(smiFields) {
			continue
		}
		index, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		mem, _ := strconv.ParseInt(f[4], 10, 64)
		h.Driver = f[3]
		h.GPUs = append(h.GPUs, GPU{Index: index, Minor: index, Name: f[1], UUID: f[2], MemoryMiB: mem,
			MIG: onOff(f[5]), MIGPending: onOff(f[6]), Persistence: onOff(f[7]), ECC: onOff(f[8])})
	}
	return h
}

func onOff(s string) string {
	switch strings.ToLower(strings.Trim(s, "[] ")) {
	case "enabled":
		return "on"
	case "disabled":
		return "off"
	}
	return "none" // [N/A], [Not Supported]
}

// readStatus reads /proc/self/status.
func readStatus(s string) (st status) {
	st.uid = -1
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "Uid:":
			if n, err := strconv.Atoi(f[min(2, len(f)-1)]); err == nil { // the effective one
				st.uid = n
			}
		case "CapEff:":
			st.caps, _ = strconv.ParseUint(f[1], 16, 64)
		}
	}
	return st
}

// processes finds those that hold an NVIDIA device, and MPS daemons.
func (e *exam) processes() (found []proc) {
	for _, dir := range e.glob("proc/[0-9]*") {
		pid, err := strconv.Atoi(path.Base(dir))
		if err != nil {
			continue
		}
		p := proc{pid: pid, name: e.program(dir)}
		for _, fd := range e.glob(dir + "/fd/*") {
			to, err := fs.ReadLink(e.o.System.FS, fd)
			if err == nil && strings.HasPrefix(to, "/dev/nvidia") && !slices.Contains(p.nodes, to) {
				p.nodes = append(p.nodes, to)
			}
		}
		if len(p.nodes) > 0 || strings.HasPrefix(p.name, "nvidia-cuda-mps") || p.name == "nv-fabricmanager" {
			slices.Sort(p.nodes)
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b proc) int { return cmp.Compare(a.pid, b.pid) })
	return found
}

// program is the name of a process, whole where its command line says it: the kernel
// keeps 15 letters.
func (e *exam) program(dir string) string {
	comm := strings.TrimSpace(e.text(dir + "/comm"))
	first, _, _ := strings.Cut(e.text(dir+"/cmdline"), "\x00")
	if base := path.Base(strings.TrimSpace(first)); strings.HasPrefix(base, comm) && comm != "" {
		return base
	}
	return comm
}

func (p proc) String() string { return fmt.Sprintf("%s (PID %d)", cmp.Or(p.name, "?"), p.pid) }

// lessVersion compares versions number by number.
func lessVersion(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}

// board finds what is known of a GPU by the name that the driver gives it.
func board(g GPU) (gpu.Model, bool) {
	name := strings.ToUpper(g.Name)
	has := func(words ...string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(name, w) })
	}
	key := ""
	switch {
	case has("GB300"):
		key = "GB300"
	case has("B300"):
		key = "B300"
	case has("GB200"):
		key = "GB200-186GB"
	case has("B200"):
		key = "B200-180GB"
	case has("GH200", "144"):
		key = "GH200-144GB"
	case has("GH200"):
		key = "GH200-96GB"
	case has("H200"):
		key = "H200-141GB"
	case has("H100", "NVL"):
		key = "H100-94GB"
	case has("H100"):
		key = "H100-80GB"
	case has("A100", "40GB"):
		key = "A100-40GB"
	case has("A100"):
		key = "A100-80GB"
	case has("RTX PRO 6000"):
		key = "RTX-PRO-6000-Blackwell"
	}
	i := slices.IndexFunc(gpu.Builtin(), func(m gpu.Model) bool { return m.Key == key })
	if i < 0 {
		return gpu.Model{}, false
	}
	return gpu.Builtin()[i], true
}

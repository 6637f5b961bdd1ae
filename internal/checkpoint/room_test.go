package checkpoint

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// files makes a file system of name and content.
func files(nameContent ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(nameContent); i += 2 {
		m[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1])}
	}
	return m
}

// TestRoom: how much main memory a process may take, by the machine and by its control groups.
func TestRoom(t *testing.T) {
	const machine = "MemTotal: 102400000 kB\nMemFree: 1 kB\nMemAvailable: 51200000 kB\n" // 100000 and 50000 MiB
	const group = "sys/fs/cgroup/gpupool/7/"
	for name, c := range map[string]struct {
		root fs.FS
		mib  int64
		why  string
		err  string
	}{
		"a twentieth stays free": {root: files("proc/meminfo", machine, "proc/7/cgroup", "0::/\n"), mib: 45000, why: "50000 MiB of it is available, of which 5000 MiB stays free"},
		"of a small machine 2 GiB": {root: files("proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable: 3072000 kB\n", "proc/7/cgroup", "0::/x\n"), mib: 952,
			why: "3000 MiB of it is available, of which 2048 MiB stays free"},
		"less than the reserve": {root: files("proc/meminfo", "MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n", "proc/7/cgroup", ""), mib: -1048},
		"a limit of its own": {root: files("proc/meminfo", machine, "proc/7/cgroup", "0::/gpupool/7\n", group+"memory.max", "10737418240\n", group+"memory.current", "5368709120\n",
			group+"memory.stat", "anon 1\ninactive_file 1073741824\n"), mib: 6144, why: "Its control group /gpupool/7 has 6144 MiB left of its limit of 10240 MiB"},
		"a limit above it": {root: files("proc/meminfo", machine, "proc/7/cgroup", "0::/gpupool/7\n", group+"memory.max", "max\n", group+"memory.current", "1\n",
			"sys/fs/cgroup/gpupool/memory.max", "2147483648\n", "sys/fs/cgroup/gpupool/memory.current", "1073741824\n"), mib: 1024, why: "/gpupool has 1024 MiB left"},
		"a limit that is wider than the machine": {root: files("proc/meminfo", machine, "proc/7/cgroup", "0::/gpupool/7\n", group+"memory.max", "1073741824000\n", group+"memory.current", "0\n"), mib: 45000},
		"the older control groups":               {root: files("proc/meminfo", machine, "proc/7/cgroup", "4:memory:/gpupool/7\n", group+"memory.max", "1\n", group+"memory.current", "0\n"), mib: 45000},
		"no word of what is available":           {root: files("proc/meminfo", "MemTotal: 4096000 kB\n"), err: "MemAvailable"},
		"no meminfo":                             {root: files(), err: "/proc/meminfo cannot be read"},
		"an ended process":                       {root: files("proc/meminfo", machine), err: "control group of process 7 cannot be read"},
	} {
		mib, why, err := room(c.root, 7)
		if c.err != "" {
			if _, refused := errors.AsType[refusal](err); !refused || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got error %v, want a refusal with %q", name, err, c.err)
			}
			continue
		}
		if err != nil || mib != c.mib || !strings.Contains(why, c.why) {
			t.Errorf("%s: got %d MiB, %q, %v; want %d MiB, %q", name, mib, why, err, c.mib, c.why)
		}
	}
}

// TestWholeGPUs: who has parts of GPUs is refused.
func TestWholeGPUs(t *testing.T) {
	for environ, want := range map[string]string{
		"A=b\x00CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\x00": "GPU-1 GPU-2",
		"A=b\x00":                         "",
		"CUDA_VISIBLE_DEVICES=MIG-aa\x00": "MIG instance MIG-aa",
		"CUDA_VISIBLE_DEVICES=GPU-1\x00CUDA_MPS_PIPE_DIRECTORY=/run/gpupool/mps/1\x00": "by MPS",
	} {
		devices, err := wholeGPUs(files("proc/7/environ", environ), 7)
		got := strings.Join(devices, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %q: got %q, want %q", environ, got, want)
		}
	}
}

// TestParse: what is asked, and what is not understood.
func TestParse(t *testing.T) {
	const a, b = "GPU-00112233-4455-6677-8899-aabbccddeeff", "GPU-ffeeddcc-bbaa-9988-7766-554433221100"
	for args, want := range map[string]string{
		"--probe":                            "",
		"--get-state --pid 7":                "",
		"--action lock --pid 7 --timeout 50": "",
		"--action restore --pid 7 --device-map " + a + "=" + b + "," + b + "=" + a: "",
		"":                               "expected one of",
		"--probe --get-state":            "expected one of",
		"--get-state":                    "expected --pid",
		"--action toggle":                "expected one of",
		"--action lock":                  "expected --pid",
		"--action lock --pid -1":         "expected --pid",
		"--action lock --pid x":          "invalid value",
		"--action lock --pid 7 and more": "too much",
		"--action restore --pid 7 --device-map " + a:                      "expected OLD=NEW",
		"--action restore --pid 7 --device-map GPU-0=GPU-1":               "expected a GPU's UUID",
		"--action restore --pid 7 --device-map " + a + "=" + b[:len(b)-2]: "expected a GPU's UUID",
		"--action restore --pid 7 --device-map " + a + "=" + b + "00":     "expected a GPU's UUID",
	} {
		c, err := parse(strings.Fields(args))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("of %q: got %v, want %q", args, err, want)
		}
		if len(c.pairs) == 2 && (c.pairs[0].from.String() != a || c.pairs[1].from.String() != b) {
			t.Errorf("of %q: got %v", args, c.pairs)
		}
	}
}

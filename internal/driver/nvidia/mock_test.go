//go:build cgo && linux

package nvidia

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/driver/drivertest"
)

// built is where the mock NVML lies, once it is built.
var built = sync.OnceValues(func() (string, error) {
	root := filepath.Join("..", "..", "..")
	out, err := filepath.Abs(filepath.Join(root, "bin", "mock"))
	if err != nil {
		return "", err
	}
	script := filepath.Join(root, "testdata", "nvml", "build.sh")
	if _, err := os.Stat(script); err != nil {
		_, err := os.Stat(filepath.Join(out, "libnvidia-ml.so.1"))
		return out, err
	}
	said, err := exec.Command(script, out).CombinedOutput()
	if err != nil {
		return "", &os.PathError{Op: strings.TrimSpace(string(said)), Path: script, Err: err}
	}
	return out, nil
})

// mock is a machine whose GPUs are in a file (testdata/nvml). What goes wrong on it is
// written into another.
type mock struct {
	t      testing.TB
	dir    string
	lib    string
	config string
	faults []string
}

// newMock makes a machine: lines as the mock's config has them, such as "gpu 2 H100-80GB".
func newMock(t testing.TB, config ...string) *mock {
	t.Helper()
	dir, err := built()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the mock NVML is not there: %v", err)
		}
		t.Skipf("the mock NVML is not there: %v", err)
	}
	m := &mock{t: t, dir: t.TempDir(), lib: filepath.Join(dir, "libnvidia-ml.so.1")}
	m.config = strings.Join(config, "\n")
	m.write("config", m.config)
	return m
}

// old is a machine with the driver of 2021.
func (m *mock) old() *mock {
	m.lib = filepath.Join(filepath.Dir(m.lib), "old", filepath.Base(m.lib))
	return m
}

func (m *mock) write(name, text string) {
	m.t.Helper()
	temp := filepath.Join(m.dir, "."+name)
	if err := os.WriteFile(temp, []byte(text+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// happen lets things go wrong: lines as the mock's faults have them.
func (m *mock) happen(lines ...string) {
	m.t.Helper()
	m.faults = append(m.faults, lines...)
	m.write("faults", strings.Join(m.faults, "\n"))
}

// heal takes lines away again.
func (m *mock) heal() {
	m.faults = nil
	m.write("faults", "")
}

func (m *mock) options(host string) Options {
	o := options(m.t, host)
	o.Helper, o.Env = []string{os.Args[0], "__nvml", m.lib}, []string{"MOCK_NVML_STATE=" + filepath.Join(m.dir, "state")}
	return o
}

func (m *mock) open(o Options) *Driver {
	m.t.Helper()
	d, err := New(m.t.Context(), o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { shut(m.t, d) })
	return d
}

// raw looks at a GPU past the driver.
func raw(t testing.TB, d *Driver, gpuID string) *look {
	t.Helper()
	got, err := d.lib.call(t.Context(), request{Op: opLook, GPU: gpuID})
	if err != nil {
		t.Fatal(err)
	}
	return got.Look
}

func TestConformsOverMockLibrary(t *testing.T) {
	for name, lines := range map[string][]string{
		"H100": {"gpu 2 H100-80GB"}, "H200": {"gpu 2 H200-141GB"}, "RTX PRO 6000": {"gpu 2 RTX-PRO-6000"},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "H100" && testing.Short() {
				t.Skip("one model is enough for a short run")
			}
			drivertest.Run(t, func(t *testing.T) driver.Driver {
				one, two := newMock(t, append(lines, "seed one")...), newMock(t, append(lines, "seed two")...)
				return pair{one.open(one.options("one")), two.open(two.options("two"))}
			})
		})
	}
}

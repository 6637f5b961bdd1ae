package nvidia

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
)

func TestAccess(t *testing.T) {
	s := newSim("H100-80GB", 2)
	o := options(t, "one")
	o.Root = fakeTree(t)
	d := openSim(t, s, o)
	cut, whole := simPart(d, 1, simMIG(d, 1, "1g.10gb", 0)), simPart(d, 2, driver.Slice{GPUID: d.host.GPUs[0].UUID, Slice: wholeSlice})
	_, err := d.Access(t.Context(), "one", cut.Owner)
	simCode(t, err, driver.ErrNoDevice)
	for _, p := range []driver.Part{cut, whole} {
		if _, err := d.Carve(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	common := []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
	minors := []int{capMinor(1, 1, false), capMinor(1, 1, true)}
	want := append(slices.Clone(common), "/dev/nvidia1", fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minors[0]), fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minors[1]))
	if a, err := d.Access(t.Context(), "one", cut.Owner); err != nil || !slices.Equal(a.Nodes, want) || !slices.Equal(a.Env, []string{"GPUPOOL_PART=1.1.0"}) {
		t.Errorf("an instance needs %+v, want %v, %v", a, want, err)
	}
	if a, err := d.Access(t.Context(), "one", whole.Owner); err != nil || !slices.Equal(a.Nodes, append(slices.Clone(common), "/dev/nvidia0")) {
		t.Errorf("a whole GPU needs %+v, %v", a, err)
	}
	// What the kernel says of one instance wins over its list.
	own := filepath.Join(o.Root, "proc", "driver", "nvidia", "capabilities", "gpu1", "mig", "gi1", "access")
	if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o755), os.WriteFile(own, []byte("DeviceFileMinor: 3\nDeviceFileMode: 256\nDeviceFileModify: 1\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if a, err := d.Access(t.Context(), "one", cut.Owner); err != nil || !slices.Contains(a.Nodes, "/dev/nvidia-caps/nvidia-cap3") {
		t.Errorf("got %+v, %v", a, err)
	}
	if err := os.Remove(below(o.Root, "/dev/nvidia-caps/nvidia-cap3")); err != nil {
		t.Fatal(err)
	}
	_, err = d.Access(t.Context(), "one", cut.Owner)
	simCode(t, err, driver.ErrNoDevice)
	if !strings.Contains(err.Error(), "nvidia-modprobe -f") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	if err := os.Remove(below(o.Root, "/dev/nvidia-uvm")); err != nil {
		t.Fatal(err)
	}
	_, err = d.Access(t.Context(), "one", whole.Owner)
	simCode(t, err, driver.ErrNoDevice)
}

// capMinor is the number of an instance's right in fakeRoot.
func capMinor(gpuMinor, gi int, ci bool) int {
	n := 2*(gpuMinor*16+gi) + 1
	if ci {
		n++
	}
	return 2*n + 1
}

func fakeTree(t testing.TB) string { return fakeRoot(t, "boot-1") }

// fakeRoot is a machine's /proc and /dev, as far as they are read.
func fakeRoot(t testing.TB, boot string) string {
	t.Helper()
	root := t.TempDir()
	put := func(name, text string) {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/sys/kernel/random/boot_id", boot+"\n")
	put("proc/meminfo", "MemTotal:       2113536 kB\n")
	for _, n := range []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"} {
		put("dev/"+n, "")
	}
	lines := "config 1\nmonitor 2\n"
	for g := range 2 {
		for gi := range 16 {
			for i, of := range []string{"gi" + strconv.Itoa(gi) + "/access", "gi" + strconv.Itoa(gi) + "/ci0/access"} {
				minor := capMinor(g, gi, i == 1)
				lines += fmt.Sprintf("gpu%d/%s %d\n", g, of, minor)
				put(fmt.Sprintf("dev/nvidia-caps/nvidia-cap%d", minor), "")
			}
		}
	}
	put("proc/driver/nvidia-caps/mig-minors", lines)
	return root
}

// until waits for what happens by itself.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(eventually); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

package nvidia

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// partVar names the part that a process belongs to, so that its share of a GPU can be
// told from others'.
const partVar = "GPUPOOL_PART"

// Access implements driver.Accesser.
func (d *Driver) Access(ctx context.Context, host string, o work.Owner) (driver.Access, error) {
	var a driver.Access
	if err := d.enter(ctx, host); err != nil {
		return a, err
	}
	release, err := d.hold(ctx, o, nil)
	if err != nil {
		return a, err
	}
	defer release()
	r := d.record(o)
	if r == nil || r.State != standing {
		return a, refuse(driver.ErrNoDevice, "nothing stands for %s on host %s", o, host)
	}
	a.Env = []string{partVar + "=" + o.String()}
	add := func(nodes ...string) {
		for _, n := range nodes {
			if !slices.Contains(a.Nodes, n) {
				a.Nodes = append(a.Nodes, n)
			}
		}
	}
	for _, n := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		if !exists(d.o.Root, n) {
			return a, refuse(driver.ErrNoDevice, "the device node %s is missing: nvidia-modprobe -u -c 0 makes it", n)
		}
		add(n)
	}
	if n := "/dev/nvidia-uvm-tools"; exists(d.o.Root, n) {
		add(n)
	}
	for i := range r.Slices {
		nodes, err := d.nodes(ctx, r, &r.Slices[i])
		if err != nil {
			return a, err
		}
		add(nodes...)
	}
	env, mounts := d.mps.access(r)
	a.Env, a.Mounts = append(a.Env, env...), mounts
	return a, nil
}

// nodes lists the device nodes of one slice: the GPU's, and for an instance the two that
// are the right to use it. A mode change may have given the GPU another number.
func (d *Driver) nodes(ctx context.Context, r *record, p *piece) ([]string, error) {
	c := d.card(p.GPUID)
	if c == nil {
		return nil, refuse(driver.ErrNoDevice, "there is no GPU %s", p.GPUID)
	}
	l, err := d.look(ctx, c)
	if err != nil {
		return nil, unchanged(explain("GPU "+p.GPUID+" cannot be looked at", err))
	}
	if p.mig() && r.find(p, l) == nil {
		return nil, refuse(driver.ErrNoDevice, "the instance of %s on GPU %s is gone", r.Owner, p.GPUID)
	}
	minor := l.Minor
	if minor < 0 {
		minor = c.at.Minor
	}
	node := fmt.Sprintf("/dev/nvidia%d", minor)
	if minor < 0 || !exists(d.o.Root, node) {
		return nil, refuse(driver.ErrNoDevice, "the device node of GPU %s (%s) is missing: nvidia-modprobe -c %d makes it", p.GPUID, node, max(minor, 0))
	}
	out := []string{node}
	if !p.mig() {
		return out, nil
	}
	for _, of := range []string{fmt.Sprintf("gi%d/access", p.GI), fmt.Sprintf("gi%d/ci%d/access", p.GI, p.CI)} {
		n, err := capability(d.o.Root, minor, of)
		if err != nil {
			return nil, refuse(driver.ErrNoDevice, "which capability opens %s of GPU %s is not known: %v; a driver older than 450.51 has none", of, p.GPUID, err)
		}
		node := fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", n)
		if !exists(d.o.Root, node) {
			return nil, refuse(driver.ErrNoDevice, "the device node %s for %s of GPU %s is missing: nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu%d/mig/%s makes it", node, of, p.GPUID, minor, of)
		}
		out = append(out, node)
	}
	return out, nil
}

// capability finds the minor number of an instance's right: what the kernel says of it,
// else its list of all.
func capability(root string, minor int, of string) (int, error) {
	b, err := os.ReadFile(below(root, fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/%s", minor, of)))
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if v, is := strings.CutPrefix(line, "DeviceFileMinor:"); is {
				return strconv.Atoi(strings.TrimSpace(v))
			}
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	b, err = os.ReadFile(below(root, "/proc/driver/nvidia-caps/mig-minors"))
	if err != nil {
		return 0, err
	}
	want := fmt.Sprintf("gpu%d/%s", minor, of)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == want {
			return strconv.Atoi(f[1])
		}
	}
	return 0, fmt.Errorf("%s is not listed in /proc/driver/nvidia-caps/mig-minors", want)
}

func exists(root, path string) bool {
	_, err := os.Stat(below(root, path))
	return err == nil
}

// shares lists the shares of a record.
func (r *record) shares() (out []piece) {
	for _, p := range r.Slices {
		if p.Mode == gpu.ModeShared {
			out = append(out, p)
		}
	}
	return out
}

package placement

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// hosts makes a cluster of hosts with n H100s each; setup may change each before it
// is added.
func hosts(t *testing.T, count, n int, setup func(i int, h *gpu.HostInfo)) *Cluster {
	t.Helper()
	c := NewCluster(testModels)
	c.Topology = []string{"zone", "rack"}
	for i := range count {
		info := gpu.HostInfo{Name: fmt.Sprint("h", i), CPUMilli: 64_000, MemMiB: 1 << 20, Labels: map[string]string{}}
		for g := range n {
			info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprint(i, ".", g), Model: "H100-80GB"})
		}
		if setup != nil {
			setup(i, &info)
		}
		if err := c.CheckHost(info); err != nil {
			t.Fatal(err)
		}
		c.AddHost(info, "p")
		c.SetUsable(i, true, false)
	}
	return c
}

// find places a request and returns the hosts and GPUs that it got.
func (c *Cluster) find(t *testing.T, id work.TaskID, r work.Request) (on, gpus []int) {
	t.Helper()
	parts := c.Find(Query{Pool: "p", Tenant: "a", Request: r})
	if parts == nil {
		t.Fatalf("no place for %s", r)
	}
	for i, p := range parts {
		c.Take(Holder{Owner: work.Owner{Task: id, Epoch: 1, Member: i}, Tenant: "a"}, p)
		on = append(on, p.Host)
		for _, s := range p.Slices {
			gpus = append(gpus, s.GPU)
		}
	}
	return on, gpus
}

// TestGangStaysNear: a gang stands in the narrowest group that holds it, the tightest
// of several, and beyond groups only when none does.
func TestGangStaysNear(t *testing.T) {
	racks := []string{"r1", "r2", "r1", "r2", "r3", "r3", "r3", ""}
	zones := []string{"z1", "z1", "z1", "z1", "z2", "z2", "z2", "z2"}
	c := hosts(t, 8, 4, func(i int, h *gpu.HostInfo) {
		h.Labels["zone"] = zones[i]
		if racks[i] != "" {
			h.Labels["rack"] = racks[i]
		}
	})
	rack := func(on []int) []string {
		var out []string
		for _, h := range on {
			out = append(out, racks[h])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	if on, _ := c.find(t, 1, work.Request{GPUs: 4, Members: 3}); !slices.Equal(rack(on), []string{"r3"}) {
		t.Errorf("three hosts are in rack r3 alone, got %v", on)
	}
	if on, _ := c.find(t, 2, work.Request{GPUs: 2}); racks[on[0]] == "r3" {
		t.Errorf("r3 is full, got %v", on)
	}
	on, _ := c.find(t, 3, work.Request{GPUs: 4, Members: 2})
	if r := rack(on); len(r) != 1 {
		t.Errorf("two hosts of one rack were free, got %v in %v", on, r)
	}
	on, _ = c.find(t, 4, work.Request{GPUs: 2, Members: 3})
	if slices.Contains(on, 7) && len(rack(on)) > 1 {
		t.Errorf("got %v across zones", on)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// TestGangOnFewestHosts: members share hosts.
func TestGangOnFewestHosts(t *testing.T) {
	c := hosts(t, 4, 4, nil)
	for id, taken := range []int{3, 2, 1} { // h0 has 1 free GPU, h1 2, h2 3, h3 4
		part := work.Part{Host: id}
		for g := range taken {
			part.Slices = append(part.Slices, work.Slice{GPU: 4*id + g, Mode: gpu.ModeWhole, Milli: 1000})
		}
		c.Take(Holder{Owner: work.Owner{Task: work.TaskID(id + 1), Epoch: 1}, Tenant: "b"}, part)
	}
	on, _ := c.find(t, 9, work.Request{GPUs: 1, Members: 6})
	slices.Sort(on)
	if want := []int{1, 1, 3, 3, 3, 3}; !slices.Equal(on, want) {
		t.Errorf("six members stand on %v, wanted the host of four and, tightly, that of two", on)
	}
	parts := hosts(t, 2, 2, nil)
	if on, _ := parts.find(t, 1, work.Request{Profile: "3g.40gb", Members: 4}); on[0] != on[3] {
		t.Errorf("four halves fit on one host, got %v", on)
	}
}

// TestNVLink: GPUs come from one domain, the tightest, and across only when they must.
func TestNVLink(t *testing.T) {
	c := hosts(t, 1, 8, func(_ int, h *gpu.HostInfo) {
		for g, d := range []string{"a", "b", "a", "b", "a", "b", "b", "b"} { // three in a, five in b
			h.GPUs[g].NVLink = d
		}
	})
	if _, gpus := c.find(t, 1, work.Request{GPUs: 2}); !slices.Equal(gpus, []int{0, 2}) {
		t.Errorf("two GPUs are %v, wanted two of the smaller domain", gpus)
	}
	if _, gpus := c.find(t, 2, work.Request{GPUs: 4}); !slices.Equal(gpus, []int{1, 3, 5, 6}) {
		t.Errorf("four GPUs are %v, wanted four of b", gpus)
	}
	if _, gpus := c.find(t, 3, work.Request{GPUs: 2}); !slices.Equal(gpus, []int{4, 7}) {
		t.Errorf("the last two are %v", gpus)
	}

	// A host where one domain has enough comes before a fuller one where none has.
	c = hosts(t, 2, 4, func(i int, h *gpu.HostInfo) {
		if i == 0 {
			h.GPUs[0].NVLink, h.GPUs[1].NVLink = "a", "a"
		}
	})
	c.find(t, 1, work.Request{GPUs: 1, Models: []string{"H100-80GB"}})
	if on, _ := c.find(t, 2, work.Request{GPUs: 3}); on[0] != 1 {
		t.Errorf("three joined GPUs are on host 1 alone, got %v", on)
	}
}

// TestChoiceFollowsDemand: what is asked for decides what is kept room for.
func TestChoiceFollowsDemand(t *testing.T) {
	start := func(asked ...string) int {
		c := hosts(t, 1, 1, nil)
		for range 20 {
			for _, p := range asked {
				c.Asked("p", work.Request{Profile: p})
			}
		}
		return c.Find(Query{Pool: "p", Tenant: "a", Request: work.Request{Profile: "2g.20gb"}})[0].Slices[0].Start
	}
	if got := start("4g.40gb"); got != 4 {
		t.Errorf("with 4g asked for, 2g starts at %d, wanted 4: a 4g may only start at 0", got)
	}
	if got := start("2g.20gb"); got > 4 {
		t.Errorf("2g starts at %d", got)
	}
	// CPU: a host whose cores are needed to feed its GPUs is spared by a task without GPUs.
	c := hosts(t, 2, 2, func(i int, h *gpu.HostInfo) { h.CPUMilli = []int64{20_000, 60_000}[i] })
	for range 20 {
		c.Asked("p", work.Request{GPUs: 1, CPUMilli: 10_000})
	}
	if on, _ := c.find(t, 1, work.Request{CPUMilli: 8_000}); on[0] != 1 {
		t.Errorf("the CPU task is on host %d, wanted the one with cores to spare", on[0])
	}
}

// TestDemandRestored: a cluster with the same holdings and demand chooses the same.
func TestDemandRestored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		type held struct {
			w Holder
			p work.Part
		}
		var all []held
		for id := range rapid.IntRange(0, 60).Draw(t, "tasks") {
			q := Query{Pool: "p", Tenant: "a", Request: drawRequest(t)}
			c.Asked("p", q.Request)
			for i, p := range c.Find(q) {
				h := held{Holder{Owner: work.Owner{Task: work.TaskID(id + 1), Epoch: 1, Member: i}, Tenant: "a"}, p}
				c.Take(h.w, h.p)
				all = append(all, h)
			}
			if len(all) > 0 && rapid.Bool().Draw(t, "free") {
				c.Free(all[0].w.Owner, all[0].p)
				all = all[1:]
			}
		}
		again := NewCluster(testModels)
		again.Topology = c.Topology
		for i, h := range c.Hosts {
			again.AddHost(h.Info, h.Pool)
			again.SetUsable(i, true, false)
		}
		again.SetDemand("p", c.Demand("p"))
		for _, h := range all {
			again.Take(h.w, h.p)
		}
		for range 5 {
			q := Query{Pool: "p", Tenant: "a", Request: drawRequest(t)}
			if a, b := c.Find(q), again.Find(q); !reflect.DeepEqual(a, b) {
				t.Fatalf("%s: %+v, and in a cluster with the same state %+v", q.Request, a, b)
			}
		}
	})
}

// TestDemandIsBounded: rare classes give way, old ones fade, and nothing overflows.
func TestDemandIsBounded(t *testing.T) {
	c := hosts(t, 1, 1, nil)
	for i := range 3 * window {
		c.Asked("p", work.Request{Milli: 10 * (1 + i%90), CPUMilli: 1 << 40, MemMiB: 1 << 40, Members: 16384})
	}
	for range 2 * window {
		c.Asked("p", work.Request{GPUs: 1})
	}
	d := c.Demand("p")
	total := int64(0)
	for _, x := range d.Asked {
		total += x.Members
		if x.Members <= 0 || x.CPUMilli < 0 || x.MemMiB < 0 {
			t.Errorf("class %+v", x)
		}
	}
	if len(d.Asked) > maxClasses || total > window {
		t.Errorf("%d classes of %d members", len(d.Asked), total)
	}
	if i := slices.IndexFunc(d.Expect, func(x Class) bool { return x.Request.GPUs == 1 }); i < 0 || d.Expect[i].Members < window/4 {
		t.Errorf("whole GPUs are all that is asked for now: %+v", d.Expect)
	}
}

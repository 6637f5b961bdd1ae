package placement

import (
	"strings"
	"testing"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// inUse is a cluster with something of everything on it: GPU 0 whole, GPU 1 cut,
// GPU 2 free, GPU 3 (a T4) shared by tenant a; h2 has no GPU.
func inUse(t *testing.T) *Cluster {
	t.Helper()
	c := NewCluster(testModels)
	c.Topology = []string{"rack"}
	gpus := []gpu.GPUInfo{{ID: "0", Model: "H100-80GB"}, {ID: "1", Model: "H100-80GB"}, {ID: "2", Model: "H100-80GB"}}
	for i, info := range []gpu.HostInfo{
		{Name: "h0", CPUMilli: 8000, MemMiB: 1024, GPUs: gpus, Labels: map[string]string{"rack": "r1"}},
		{Name: "h1", CPUMilli: 8000, MemMiB: 1024, GPUs: []gpu.GPUInfo{{ID: "3", Model: "T4"}}},
		{Name: "h2", CPUMilli: 8000, MemMiB: 1024},
	} {
		c.AddHost(info, "p")
		c.SetUsable(i, true, false)
	}
	for i, r := range []work.Request{
		{GPUs: 1, Models: []string{"H100-80GB"}}, {Profile: "3g.40gb"}, {Profile: "1g.10gb"},
		{Milli: 300, Isolation: work.IsolationShared, Models: []string{"T4"}, CPUMilli: 1000, MemMiB: 100},
	} {
		parts := c.Find(Query{Pool: "p", Tenant: "a", Request: r})
		if parts == nil {
			t.Fatalf("%s found no place", r)
		}
		c.Take(Holder{Owner: work.Owner{Task: work.TaskID(i + 1), Epoch: 1}, Tenant: "a"}, parts[0])
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCheckBites plants one fault for each thing Check looks at.
func TestCheckBites(t *testing.T) {
	shelf := func(c *Cluster, model string) *shelf {
		m, _ := c.Model(model)
		return c.pools["p"].shelves[m]
	}
	for _, x := range []struct {
		name  string
		plant func(*Cluster)
		want  string
	}{
		{"overlap", func(c *Cluster) { c.GPUs[1].Held[1].Slice.Start = c.GPUs[1].Held[0].Slice.Start }, "overlaps another slice"},
		{"illegal start", func(c *Cluster) { c.GPUs[1].Held[0].Slice.Start = 1 }, "3g.40gb may not start there"},
		{"foreign profile", func(c *Cluster) { c.GPUs[1].Held[0].Slice.Profile = "2g.48gb" }, "no profile 2g.48gb on H100-80GB"},
		{"mask", func(c *Cluster) { c.GPUs[1].Mask ^= 1 }, "sums are off: mask"},
		{"milli", func(c *Cluster) { c.GPUs[0].Milli-- }, "sums are off"},
		{"memory", func(c *Cluster) { c.GPUs[3].MemMiB++ }, "sums are off"},
		{"mixed modes", func(c *Cluster) { c.GPUs[1].Mode = gpu.ModeShared }, "a slice of mode mig stands on a GPU of mode shared"},
		{"wrong GPU", func(c *Cluster) { c.GPUs[0].Held[0].Slice.GPU = 2 }, "a slice of mode whole stands on"},
		{"lost slice", func(c *Cluster) { c.GPUs[0].Held, c.GPUs[0].Milli = nil, 0 }, "mode whole with 0 slices"},
		{"two on a whole GPU", func(c *Cluster) {
			c.GPUs[0].Held = append(c.GPUs[0].Held, c.GPUs[0].Held[0])
			c.GPUs[0].Milli = 2000
		}, "2 tasks on a whole GPU"},
		{"too many share", func(c *Cluster) { c.Sharers = 0 }, "1 tasks share"},
		{"share too much", func(c *Cluster) { c.GPUs[3].Held[0].Slice.Milli, c.GPUs[3].Milli = 1001, 1001 }, "share 1001 thousandths"},
		{"share too much memory", func(c *Cluster) {
			c.GPUs[3].Held[0].Slice.Share = &work.Share{Milli: 300, MemMiB: 20000}
			c.GPUs[3].MemMiB = 20000
		}, "and 20000 MiB"},
		{"free bit", func(c *Cluster) { c.Hosts[0].bays[0].free = 0 }, "free bit is false"},
		{"free bit of a taken GPU", func(c *Cluster) { c.Hosts[0].bays[0].free |= 1 }, "free bit is true"},
		{"free bit of a broken GPU", func(c *Cluster) { c.GPUs[2].Health = gpu.HealthBroken }, "free bit is true"},
		{"state row", func(c *Cluster) {
			h100 := shelf(c, "H100-80GB")
			h100.states[c.GPUs[1].Mask].leave(c.Hosts[0].level, 1)
		}, "1 is missing in cell"},
		{"shared row", func(c *Cluster) { shelf(c, "T4").shared["b"] = shelf(c, "T4").shared["a"] }, "shared by b with 700 left"},
		{"shared level", func(c *Cluster) { shelf(c, "T4").shared["a"].have.remove(700) }, "the level says false"},
		{"host row", func(c *Cluster) { c.Hosts[0].bays[0].in[0].rows[1][1].leave(c.Hosts[0].level, 0) }, "row of 1 free GPUs, 1 linked"},
		{"bare row", func(c *Cluster) { c.pools["p"].bare.leave(c.Hosts[2].level, 2) }, "hosts without GPUs: 2 is missing"},
		{"cell of a row", func(c *Cluster) { c.Hosts[2].CPUMilli = 100 }, "at level"},
		{"bit of a cell", func(c *Cluster) { c.pools["p"].bare.used |= 1 }, "its bit says otherwise"},
		{"most of a word", func(c *Cluster) { c.pools["p"].bare.cells[c.Hosts[2].level].word[0].mem = 7 }, "thinks that less is left"},
		{"most of words", func(c *Cluster) { c.pools["p"].bare.cells[c.Hosts[2].level].over[0].cpu = 7 }, "thinks that less is left"},
		{"idle", func(c *Cluster) { c.Hosts[0].idle++ }, "thousandths idle, counted"},
		{"hosts by free GPUs", func(c *Cluster) { c.Hosts[0].bays[0].in[0].hosts[1] = 0 }, "1 hosts with 1 free GPUs, counted 0"},
		{"free GPUs of a rack", func(c *Cluster) { c.Hosts[0].bays[0].in[0].group.free = 2 }, "a group has 1 free GPUs, counted 2"},
		{"kept and given out all the same", func(c *Cluster) { c.GPUs[2].Kept = true }, "free bit is true"},
		{"kept and not withheld", func(c *Cluster) {
			c.Keep(work.Part{Host: 0, Slices: []work.Slice{{GPU: 1}}})
			c.GPUs[1].Kept = false
		}, "1 is missing in cell"},
		{"not kept and withheld", func(c *Cluster) {
			c.Keep(work.Part{Host: 0, Slices: []work.Slice{{GPU: 2}}})
			c.GPUs[2].Kept = false
		}, "free bit is false"},
		{"kept CPU", func(c *Cluster) { c.Hosts[0].kept.cpu++ }, "has 8001 mCPU"},
		{"kept CPU less than nothing", func(c *Cluster) { c.Hosts[2].kept.cpu-- }, "has 7999 mCPU"},
		{"CPU", func(c *Cluster) { c.Hosts[1].CPUMilli = -1 }, "has -1 mCPU"},
		{"memory of a host", func(c *Cluster) { c.Hosts[2].MemMiB = 2000 }, "2000 MiB free"},
		{"count of free GPUs", func(c *Cluster) { shelf(c, "H100-80GB").free++ }, "the index counts 2, 1 and 3"},
		{"count of usable GPUs", func(c *Cluster) { shelf(c, "T4").usable-- }, "the index counts 0, 0 and 0"},
		{"count of cut GPUs", func(c *Cluster) { shelf(c, "H100-80GB").part = 0 }, "the index counts 1, 0 and 3"},
		{"count of hosts with a model", func(c *Cluster) { shelf(c, "T4").bays++ }, "has 1 hosts with T4, counted 2"},
		{"count of hosts", func(c *Cluster) { c.Hosts[0].sound.up-- }, "has 1 hosts of a shape, 1 usable; the index counts 1 and 0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := inUse(t)
			x.plant(c)
			if err := c.Check(); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, wanted %q", err, x.want)
			}
		})
	}
}

// TestWhySentences checks the sentences against what inUse holds.
func TestWhySentences(t *testing.T) {
	for _, x := range []struct {
		name    string
		tenant  string
		request work.Request
		code    work.Code
		want    string
	}{
		{"one host", "a", work.Request{GPUs: 2, Models: []string{"H100-80GB"}}, work.WaitGPUs,
			"needs 2 whole GPUs of model H100-80GB; H100-80GB: 1 of 3 GPUs free, at most 1 in one host"},
		{"two models", "a", work.Request{GPUs: 1, Members: 2}, work.WaitGPUs,
			"needs 2 members of 1 whole GPU; T4: 0 of 1 GPUs free, at most 0 in one host; H100-80GB: 1 of 3 GPUs free, at most 1 in one host"},
		{"share of another's GPU", "b", work.Request{Milli: 300, Models: []string{"T4"}}, work.WaitGPUs,
			"needs 0.3 GPU of model T4; T4: takes 30% and 4.5GiB, and none of 1 GPUs (0 free) has room for it beside the tenant's own tasks"},
		{"gang of parts", "a", work.Request{Profile: "3g.40gb", Members: 4}, work.WaitGPUs,
			"needs 4 members of 3g.40gb; H100-80GB: takes 3g.40gb, and its 3 GPUs (1 free, 1 cut) have no room for all 4"},
		{"CPU beside the tenant's own share", "a", work.Request{Milli: 300, Models: []string{"T4"}, CPUMilli: 7500}, work.WaitHost,
			"needs 0.3 GPU of model T4 with 7.5 CPUs in one host; GPUs are free, but no host with them has that much CPU and memory left"},
		{"never now", "a", work.Request{GPUs: 1, CPUMilli: 9000}, work.WaitCapacity,
			"needs 1 whole GPU with 9 CPUs; the usable hosts of pool p could not hold that even when empty: they have 1 host(s) of 3 × H100-80GB, 8 CPUs, 1GiB; 1 host(s) of 1 × T4, 8 CPUs, 1GiB; 1 host(s) of no GPU, 8 CPUs, 1GiB"},
		{"no such model", "a", work.Request{GPUs: 1, Models: []string{"B200"}}, work.WaitCapacity, "needs 1 whole GPU of model B200; pool p has only H100-80GB, T4"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := inUse(t)
			if c.Find(Query{Pool: "p", Tenant: x.tenant, Request: x.request}) != nil {
				t.Fatal("it has a place")
			}
			if got := c.Why("p", x.tenant, x.request); got.Code != x.code || got.Msg != x.want {
				t.Errorf("got  %s %s\nwant %s %s", got.Code, got.Msg, x.code, x.want)
			}
		})
	}
}

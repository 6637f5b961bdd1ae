package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// testModels has a seven-slice board, one with twelve units, and two without MIG.
var testModels = func() (out []*gpu.Geometry) {
	for _, m := range gpu.Builtin() {
		if slices.Contains([]string{"H100-80GB", "RTX-PRO-6000-Blackwell", "T4", "L40S"}, m.Key) {
			out = append(out, gpu.NewGeometry(m))
		}
	}
	return out
}()

func drawCluster(t *rapid.T) *Cluster {
	c := NewCluster(testModels)
	c.Topology = []string{"zone", "rack"}
	for h := range rapid.IntRange(1, 4).Draw(t, "hosts") {
		info := gpu.HostInfo{Name: fmt.Sprint("h", h), CPUMilli: 1000 * rapid.Int64Range(0, 16).Draw(t, "cpus"), MemMiB: 1 << rapid.IntRange(10, 16).Draw(t, "mem"),
			Labels: map[string]string{"rack": rapid.SampledFrom([]string{"", "r1", "r2"}).Draw(t, "rack"), "zone": rapid.SampledFrom([]string{"", "z"}).Draw(t, "zone")}}
		for range rapid.IntRange(0, 2).Draw(t, "bays") {
			model := testModels[rapid.IntRange(0, len(testModels)-1).Draw(t, "model")].Model.Key
			for range rapid.IntRange(1, 3).Draw(t, "gpus") {
				info.GPUs = append(info.GPUs, gpu.GPUInfo{ID: fmt.Sprintf("h%d.%d", h, len(info.GPUs)), Model: model,
					NVLink: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "nvlink")})
			}
		}
		if err := c.CheckHost(info); err != nil {
			t.Fatal(err)
		}
		host := c.AddHost(info, rapid.SampledFrom([]string{"p", "p", "q"}).Draw(t, "pool"))
		c.SetUsable(host.Number, true, false)
	}
	return c
}

func drawRequest(t *rapid.T) work.Request {
	r := rapid.SampledFrom([]work.Request{
		{}, {GPUs: 1}, {GPUs: 1}, {GPUs: 2}, {GPUs: 3}, {GPUs: 1, GPUMemMiB: 40 << 10},
		{Milli: 100}, {Milli: 143}, {Milli: 300}, {Milli: 600}, {Milli: 143, GPUMemMiB: 15 << 10},
		{Milli: 100, Isolation: work.IsolationAny}, {Milli: 600, Isolation: work.IsolationAny},
		{Milli: 250, Isolation: work.IsolationShared}, {Milli: 50, GPUMemMiB: 9 << 10, Isolation: work.IsolationShared},
		{Milli: 400, Isolation: work.IsolationMIG}, {GPUMemMiB: 8 << 10}, {GPUMemMiB: 60 << 10},
		{Profile: "1g.10gb"}, {Profile: "1g.10gb+me"}, {Profile: "1g.20gb"}, {Profile: "2g.20gb"}, {Profile: "3g.40gb"},
		{Profile: "4g.40gb"}, {Profile: "7g.80gb"}, {Profile: "1g.24gb"}, {Profile: "1g.24gb+gfx"}, {Profile: "2g.48gb"}, {Profile: "9g.99gb"},
	}).Draw(t, "request")
	if rapid.Bool().Draw(t, "hungry") {
		r.CPUMilli = rapid.Int64Range(0, 6000).Draw(t, "cpu")
		r.MemMiB = rapid.Int64Range(0, 8<<10).Draw(t, "ram")
	}
	if rapid.IntRange(0, 3).Draw(t, "picky") == 0 {
		r.Models = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"H100-80GB", "T4", "L40S", "none"}), 1, 2, rapid.ID).Draw(t, "models")
	}
	return r
}

func (c *Cluster) test(t *rapid.T, what string) {
	t.Helper()
	if err := c.Check(); err != nil {
		t.Fatalf("after %s: %v", what, err)
	}
}

// fits is the long way to say whether a slice may be put on a GPU.
func (c *Cluster) fits(n int, tenant string, fit work.Fit) (starts []int, ok bool) {
	g := c.GPUs[n]
	geo := c.Geometry(n)
	if g.Health != gpu.HealthOK || g.Kept {
		return nil, false
	}
	if fit.Profile < 0 {
		milli, mem := fit.Milli, fit.Share.MemMiB
		for _, h := range g.Held {
			if h.Slice.Mode != gpu.ModeShared || g.Tenant != tenant {
				return nil, false
			}
			milli, mem = milli+h.Slice.Milli, mem+h.Slice.Share.MemMiB
		}
		return []int{0}, milli <= 1000 && mem <= geo.Model.MemoryMiB && len(g.Held) < c.Sharers
	}
	var stand []gpu.Placed
	for _, h := range g.Held {
		if h.Slice.Mode != gpu.ModeMIG {
			return nil, false
		}
		stand = append(stand, gpu.Placed{Profile: h.Slice.Profile, Start: h.Slice.Start})
	}
	p := geo.Model.Profiles[fit.Profile]
	for _, s := range p.Starts {
		if geo.Legal(append(slices.Clone(stand), gpu.Placed{Profile: p.Name, Start: s})) == "" {
			starts = append(starts, s)
		}
	}
	return starts, len(starts) > 0
}

// room walks every GPU of a host for those that can serve a member, in each form.
func (c *Cluster) room(h *Host, q Query) (whole map[int][]int, parts map[int][]work.Fit) {
	whole, parts = map[int][]int{}, map[int][]work.Fit{}
	r := q.Request
	for _, n := range h.GPUs {
		m := c.GPUs[n].model
		model := c.models[m].Model
		if q.Blocked[m] || len(r.Models) > 0 && !slices.Contains(r.Models, model.Key) {
			continue
		}
		if r.GPUs > 0 && len(c.GPUs[n].Held) == 0 && c.GPUs[n].Health == gpu.HealthOK && !c.GPUs[n].Kept && r.GPUMemMiB <= model.MemoryMiB {
			whole[m] = append(whole[m], n)
		}
		if r.IsPart() {
			for _, fit := range r.FitPart(model) {
				if _, ok := c.fits(n, q.Tenant, fit); ok {
					parts[n] = append(parts[n], fit)
				}
			}
		}
	}
	return whole, parts
}

// capacity counts by walking everything how many members fit now.
func (c *Cluster) capacity(q Query) int {
	r := q.Request
	perModel := make([]int, len(c.models)) // members of one gang of whole GPUs get one model
	total := 0
	for _, h := range c.Hosts {
		if h.Pool != q.Pool || !h.Up || h.Cordoned {
			continue
		}
		if h.CPUMilli < 0 || h.MemMiB < 0 { // more is kept than is free: nobody new may come
			continue
		}
		byHost := r.Count()
		if r.CPUMilli > 0 {
			byHost = min(byHost, int(h.CPUMilli/r.CPUMilli))
		}
		if r.MemMiB > 0 {
			byHost = min(byHost, int(h.MemMiB/r.MemMiB))
		}
		whole, parts := c.room(h, q)
		for m, free := range whole {
			perModel[m] += min(len(free)/r.GPUs, byHost)
		}
		n := 0
		for g, fits := range parts {
			n += c.capacityOf(g, q.Tenant, fits)
		}
		if r.HostOnly() {
			n = byHost
		}
		total += min(n, byHost)
	}
	return max(total, slices.Max(perModel))
}

// capacityOf counts how many slices one GPU takes, by giving them. An empty GPU
// is opened in the best form.
func (c *Cluster) capacityOf(n int, tenant string, fits []work.Fit) int {
	g := c.GPUs[n]
	if g.Mode == gpu.ModeFree {
		fits = fits[:1]
	}
	var given []work.Slice
	for _, f := range fits {
		for starts, ok := c.fits(n, tenant, f); ok; starts, ok = c.fits(n, tenant, f) {
			s := work.Slice{GPU: n, Mode: gpu.ModeShared, Share: &f.Share, Milli: f.Milli}
			if f.Profile >= 0 {
				s = work.Slice{GPU: n, Mode: gpu.ModeMIG, Profile: c.Geometry(n).Model.Profiles[f.Profile].Name, Start: starts[0], Milli: f.Milli}
			}
			c.Take(Holder{Owner: work.Owner{Task: 9999, Member: len(given)}, Tenant: tenant}, work.Part{Host: g.Host, Slices: []work.Slice{s}})
			given = append(given, s)
		}
	}
	for i, s := range given {
		c.Free(work.Owner{Task: 9999, Member: i}, work.Part{Host: g.Host, Slices: []work.Slice{s}})
	}
	return len(given)
}

// honest says what is wrong with a part that Find proposes, or "".
func (c *Cluster) honest(q Query, p work.Part) string {
	h := c.Hosts[p.Host]
	r := q.Request
	if h.Pool != q.Pool || !h.Up || h.Cordoned || p.CPUMilli != r.CPUMilli || p.MemMiB != r.MemMiB || h.CPUMilli < r.CPUMilli || h.MemMiB < r.MemMiB {
		return "the host is wrong"
	}
	whole, parts := c.room(h, q)
	seen := map[int]bool{}
	for _, s := range p.Slices {
		if seen[s.GPU] {
			return "a GPU twice"
		}
		seen[s.GPU] = true
		if s.Mode == gpu.ModeWhole && !slices.Contains(whole[c.GPUs[s.GPU].model], s.GPU) {
			return "the GPU is not free"
		}
		if s.Mode == gpu.ModeWhole || s.Mode == gpu.ModeFree {
			continue
		}
		ok := slices.ContainsFunc(parts[s.GPU], func(f work.Fit) bool {
			starts, _ := c.fits(s.GPU, q.Tenant, f)
			if f.Profile < 0 {
				return s.Mode == gpu.ModeShared && *s.Share == f.Share && s.Milli == f.Milli
			}
			return s.Mode == gpu.ModeMIG && s.Profile == c.Geometry(s.GPU).Model.Profiles[f.Profile].Name && slices.Contains(starts, s.Start) && s.Milli == f.Milli
		})
		if !ok {
			return "the slice does not fit"
		}
	}
	if want := max(r.GPUs, min(len(parts), 1)); len(p.Slices) != want {
		return fmt.Sprintf("%d slices, wanted %d", len(p.Slices), want)
	}
	return ""
}

// dump writes what a caller can see of the cluster.
func (c *Cluster) dump() string {
	var b strings.Builder
	for _, h := range c.Hosts {
		fmt.Fprintln(&b, h.Number, h.Pool, h.Up, h.Cordoned, h.CPUMilli, h.MemMiB)
	}
	for _, g := range c.GPUs {
		fmt.Fprintln(&b, g.Number, g.Health, g.Kept, g.Mode, g.Mask, g.Tenant, g.Milli, g.MemMiB, g.Held)
	}
	return b.String()
}

// TestAgainstBruteForce takes and frees at random, breaks and moves things, and
// asks after each change what walking every GPU would answer.
func TestAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		type lease struct {
			o work.Owner
			p work.Part
		}
		var held []lease
		var kept []work.Part
		task := work.TaskID(0)
		find := func(t *rapid.T) {
			q := Query{Pool: "p", Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), Request: drawRequest(t)}
			if rapid.Bool().Draw(t, "gang") {
				q.Request.Members = rapid.IntRange(2, 6).Draw(t, "members")
			}
			if rapid.IntRange(0, 4).Draw(t, "block") == 0 {
				q.Blocked = ModelSet{rapid.IntRange(0, len(testModels)-1).Draw(t, "blocked"): true}
			}
			if rapid.Bool().Draw(t, "asked") {
				c.Asked("p", q.Request)
			}
			before := c.dump()
			parts := c.Find(q)
			if after := c.dump(); after != before {
				t.Fatalf("Find changed the cluster:\n%s\n%s", before, after)
			}
			c.test(t, "Find")
			if n := c.capacity(q); (parts != nil) != (n >= q.Request.Count()) {
				t.Fatalf("Find(%+v) = %+v, by brute force %d members fit\n%s", q, parts, n, before)
			}
			if parts == nil {
				if q.Blocked == nil {
					c.testWhy(t, q)
				}
				return
			}
			if len(parts) != q.Request.Count() {
				t.Fatalf("%d parts for a gang of %d", len(parts), q.Request.Count())
			}
			task++
			for i, p := range parts { // one after the other: none may use what an earlier one took
				if bad := c.honest(q, p); bad != "" {
					t.Fatalf("Find(%+v) proposes %+v for member %d: %s\n%s", q, p, i, bad, c.dump())
				}
				o := work.Owner{Task: task, Epoch: 1, Member: i}
				c.Take(Holder{Owner: o, Tenant: q.Tenant, Priority: work.Priority(task % 3)}, p)
				held = append(held, lease{o, p})
				c.test(t, "Take")
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"find":  find,
			"find2": find,
			"find3": find,
			"free": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing held")
				}
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				c.Free(held[i].o, held[i].p)
				held = slices.Delete(held, i, i+1)
				c.test(t, "Free")
			},
			"host": func(t *rapid.T) {
				n := rapid.IntRange(0, len(c.Hosts)-1).Draw(t, "host")
				c.SetUsable(n, rapid.IntRange(0, 3).Draw(t, "up") > 0, rapid.IntRange(0, 3).Draw(t, "cordoned") == 0)
				c.test(t, "SetUsable")
			},
			"health": func(t *rapid.T) {
				if len(c.GPUs) == 0 {
					t.Skip("no GPU")
				}
				c.SetHealth(rapid.IntRange(0, len(c.GPUs)-1).Draw(t, "gpu"), rapid.SampledFrom([]gpu.Health{gpu.HealthOK, gpu.HealthBroken, gpu.HealthSuspect}).Draw(t, "health"), 0, "")
				c.test(t, "SetHealth")
			},
			"keep": func(t *rapid.T) {
				part, ok := drawKept(t, c)
				if !ok {
					t.Skip("nothing to keep")
				}
				before := c.dump()
				c.Keep(part)
				c.test(t, "Keep")
				if rapid.Bool().Draw(t, "at once") {
					c.Unkeep(part)
					if after := c.dump(); after != before {
						t.Fatalf("Keep and Unkeep changed the cluster:\n%s\n%s", before, after)
					}
					c.test(t, "Unkeep")
					return
				}
				kept = append(kept, part)
			},
			"unkeep": func(t *rapid.T) {
				if len(kept) == 0 {
					t.Skip("nothing kept")
				}
				i := rapid.IntRange(0, len(kept)-1).Draw(t, "which")
				c.Unkeep(kept[i])
				kept = slices.Delete(kept, i, i+1)
				c.test(t, "Unkeep")
			},
			"pool": func(t *rapid.T) {
				c.SetPool(rapid.IntRange(0, len(c.Hosts)-1).Draw(t, "host"), rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pool"))
				c.test(t, "SetPool")
			},
		})
		for _, l := range slices.Backward(held) {
			c.Free(l.o, l.p)
		}
		c.test(t, "freeing all")
		for _, p := range kept {
			c.Unkeep(p)
		}
		c.test(t, "keeping nothing")
		for _, h := range c.Hosts {
			if h.CPUMilli != h.Info.CPUMilli || h.MemMiB != h.Info.MemMiB {
				t.Fatalf("all is freed, but host %s has %d mCPU and %d MiB", h.Info.Name, h.CPUMilli, h.MemMiB)
			}
		}
		for _, g := range c.GPUs {
			if g.Kept || g.Mode != gpu.ModeFree || g.Mask != 0 || g.Milli != 0 || g.MemMiB != 0 || g.Tenant != "" {
				t.Fatalf("all is freed, but GPU %+v is not empty", g)
			}
		}
	})
}

// drawKept draws GPUs of one host that are not kept, whatever stands on them, and CPU
// and memory of it that are not kept either.
func drawKept(t *rapid.T, c *Cluster) (work.Part, bool) {
	h := c.Hosts[rapid.IntRange(0, len(c.Hosts)-1).Draw(t, "host")]
	p := work.Part{Host: h.Number, CPUMilli: rapid.Int64Range(0, h.Info.CPUMilli-h.kept.cpu).Draw(t, "cpu"), MemMiB: rapid.Int64Range(0, h.Info.MemMiB-h.kept.mem).Draw(t, "ram")}
	if len(h.bays) == 0 {
		return p, p.CPUMilli+p.MemMiB > 0
	}
	for _, n := range h.bays[rapid.IntRange(0, len(h.bays)-1).Draw(t, "bay")].gpus { // a part is of one bay
		if !c.GPUs[n].Kept && rapid.Bool().Draw(t, "kept") {
			p.Slices = append(p.Slices, work.Slice{GPU: n})
		}
	}
	return p, len(p.Slices) > 0 || p.CPUMilli+p.MemMiB > 0
}

// testWhy compares the reason for waiting, and each number in it, with what
// walking every GPU says.
func (c *Cluster) testWhy(t *rapid.T, q Query) {
	t.Helper()
	why := c.Why(q.Pool, q.Tenant, q.Request)
	noHost := q
	noHost.Request.CPUMilli, noHost.Request.MemMiB = 0, 0
	want := work.WaitGPUs
	switch {
	case !c.Possible(q.Pool, q.Request, true):
		want = work.WaitCapacity
	case c.capacity(noHost) >= q.Request.Count():
		want = work.WaitHost
	}
	if why.Code != want {
		t.Fatalf("Why(%+v) = %+v, wanted %s\n%s", q, why, want, c.dump())
	}
	if want != work.WaitGPUs || q.Request.HostOnly() {
		return
	}
	for _, m := range c.Candidates(q.Pool, q.Request) {
		var free, cut, usable, most int
		for _, h := range c.Hosts {
			here := 0
			for _, n := range h.GPUs {
				if g := c.GPUs[n]; g.model == m && h.Pool == q.Pool && h.Up && !h.Cordoned && g.Health == gpu.HealthOK && !g.Kept {
					usable++
					if len(g.Held) == 0 {
						here++
					}
					if g.Mode == gpu.ModeMIG {
						cut++
					}
				}
			}
			free, most = free+here, max(most, here)
		}
		sentence := fmt.Sprintf("%d of %d GPUs free, at most %d in one host", free, usable, most)
		if q.Request.IsPart() {
			sentence = fmt.Sprintf("%d GPUs (%d free", usable, free)
			if q.Request.FitPart(c.models[m].Model)[0].Profile >= 0 {
				sentence += fmt.Sprintf(", %d cut", cut)
			}
		}
		if key := c.models[m].Model.Key + ": "; !strings.Contains(why.Msg, key) || !strings.Contains(why.Msg, sentence) {
			t.Fatalf("Why(%+v) = %q, wanted %s and %q\n%s", q, why.Msg, key, sentence, c.dump())
		}
	}
}

// TestPossible: what is said to be possible has a place on the empty hosts, and
// what is refused has none, also for gangs.
func TestPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		q := Query{Pool: "p", Tenant: "a", Request: drawRequest(t)}
		q.Request.Members = rapid.IntRange(1, 14).Draw(t, "members")
		possible := c.Possible("p", q.Request, false)
		if n := c.capacity(q); possible != (n >= q.Request.Count()) {
			t.Fatalf("Possible(%+v) = %v, %d members fit the empty hosts\n%s", q, possible, n, c.dump())
		}
		if found := c.Find(q) != nil; found != possible {
			t.Fatalf("Possible(%+v) = %v, found on the empty cluster: %v\n%s", q, possible, found, c.dump())
		}
		for _, h := range c.Hosts {
			c.SetUsable(h.Number, rapid.Bool().Draw(t, "up"), rapid.IntRange(0, 3).Draw(t, "cordoned") == 0)
		}
		if now, n := c.Possible("p", q.Request, true), c.capacity(q); now != (n >= q.Request.Count()) {
			t.Fatalf("Possible(%+v) on usable hosts = %v, %d members fit them\n%s", q, now, n, c.dump())
		}
		if c.Possible("p", q.Request, false) != possible {
			t.Fatal("losing hosts changed what is ever possible")
		}
		wanted := c.Wanted("p", q.Request)
		for m, geo := range c.models { // each model alone
			one := q
			one.Blocked = ModelSet{0: true, 1: true, 2: true, 3: true}
			delete(one.Blocked, m)
			if q.Request.GPUs == 0 {
				one.Request.Members = 1
			}
			can := !q.Request.HostOnly() && c.capacity(one) >= one.Request.Count()
			if slices.Contains(wanted, m) != can {
				t.Fatalf("Wanted(%+v) = %v, it could be placed on %s: %v\n%s", q, wanted, geo.Model.Key, can, c.dump())
			}
		}
	})
}

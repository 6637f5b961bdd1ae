package api

import (
	"context"
	"math"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// getMap shows every GPU at once, for pages that draw them all.
func (s *server) getMap(ctx context.Context, _ *struct{}) (*answer[apitype.Map], error) {
	seq := s.host.LastEvent() // before the look: what happens between is in the map, and told again
	use := s.usage()
	var out apitype.Map
	s.host.Read(func(e *engine.Engine) {
		c := cartographer{view: view{e, use}, c: who(ctx), tenants: map[string]int{}, models: map[string]int{}, pools: map[string]int{}}
		out = c.draw()
	})
	out.Seq = seq
	return answerOf(out, nil)
}

// cartographer draws one map for one caller. Names go into lists once, and stand as
// their numbers in those everywhere else.
type cartographer struct {
	view
	c                      caller
	out                    apitype.Map
	tenants, models, pools map[string]int
}

func (c *cartographer) draw() apitype.Map {
	c.out = apitype.Map{Tenants: []string{}, Pools: []string{}, Models: []apitype.MapModel{}, Hosts: []apitype.MapHost{}, GPUs: []apitype.MapGPU{}}
	for _, h := range c.Hosts() {
		c.out.Hosts = append(c.out.Hosts, apitype.MapHost{Name: h.Info.Name, Pool: nth(c.pools, &c.out.Pools, h.Pool), Up: h.Up})
	}
	for _, g := range c.GPUs() {
		x := apitype.MapGPU{Host: g.Host, Model: c.model(g.Number, g.Model), Slices: [][]int64{}}
		if g.Health != gpu.HealthOK {
			x.Health = string(g.Health)
		}
		for _, held := range g.Held {
			x.Slices = append(x.Slices, c.slice(g.ID, held.Owner, held.Slice))
		}
		c.out.GPUs = append(c.out.GPUs, x)
	}
	return c.out
}

// model is the number of a GPU's model, which is put into the list at its first GPU.
func (c *cartographer) model(number int, name string) int {
	if i, known := c.models[name]; known {
		return i
	}
	m := c.Cluster().Geometry(number).Model
	x := apitype.MapModel{Name: name, Units: m.Units, MemoryMiB: m.MemoryMiB, Profiles: []apitype.MapProfile{}}
	for _, p := range m.Profiles {
		x.Profiles = append(x.Profiles, apitype.MapProfile{Name: p.Name, Units: p.Units})
	}
	c.models[name] = len(c.out.Models)
	c.out.Models = append(c.out.Models, x)
	return c.models[name]
}

// slice is a row of the map. Of another tenant's it says only what is taken.
func (c *cartographer) slice(id string, o work.Owner, s work.Slice) []int64 {
	row := apitype.MapSlice{Start: s.Start, Units: c.units(s), Milli: s.Milli, Use: -1, Mode: string(s.Mode), Tenant: -1}
	t := c.Task(o.Task)
	if t != nil && c.c.owns(t.Spec.Tenant) {
		row.Task, row.Epoch, row.Member, row.Tenant = uint64(o.Task), o.Epoch, o.Member, nth(c.tenants, &c.out.Tenants, t.Spec.Tenant)
		if u, known := c.use[useKey{o, id}]; known && u.Compute >= 0 {
			row.Use = int(math.Round(100 * u.Compute))
		}
	}
	return row.Numbers()
}

func (c *cartographer) units(s work.Slice) int {
	if s.Mode != gpu.ModeMIG {
		return 0
	}
	p, _ := c.Cluster().Geometry(s.GPU).Model.Profile(s.Profile)
	return p.Units
}

// nth is the number of a name in a list, to which it is added where it is new.
func nth(known map[string]int, list *[]string, name string) int {
	i, ok := known[name]
	if !ok {
		i = len(*list)
		known[name] = i
		*list = append(*list, name)
	}
	return i
}

package placement

import "slices"

// groups is the groups of hosts at one topology level of a pool, such as its
// racks, by GPU model.
type groups map[int]*byFree

// group is the hosts of one rack, or whatever the label names.
type group struct {
	standing
	number int
	free   int // GPUs
	order  *byFree
}

// byFree orders the groups with GPUs of one model by how many of those are free.
type byFree struct {
	list   map[int]*group // by number
	have   set            // of numbers of free GPUs
	groups map[int]*set
}

// groupsOf returns the groups that a host belongs to by its labels, narrowest
// first, making those that are new.
func (p *poolIndex) groupsOf(c *Cluster, h *Host, model int) []*standing {
	var out []*standing
	for len(p.groups) < len(c.Topology) {
		p.groups = append(p.groups, groups{})
	}
	for l, label := range slices.Backward(c.Topology) {
		if name := h.Info.Labels[label]; name != "" {
			out = append(out, &p.groups[l].get(model, c.number(name)).standing)
		}
	}
	return out
}

// number is that of a group's name: in the order in which hosts with it were added,
// so that it does not depend on what became of them since.
func (c *Cluster) number(name string) int {
	n, ok := c.groupNames[name]
	if !ok {
		n = len(c.groupNames)
		c.groupNames[name] = n
	}
	return n
}

func (s groups) get(model, number int) *group {
	o := s[model]
	if o == nil {
		o = &byFree{list: map[int]*group{}, groups: map[int]*set{}}
		s[model] = o
	}
	g := o.list[number]
	if g == nil {
		g = &group{number: number, order: o}
		g.group = g
		o.list[number] = g
		o.add(g)
	}
	return g
}

func (o *byFree) add(g *group) {
	if o.groups[g.free] == nil {
		o.groups[g.free] = &set{}
	}
	o.groups[g.free].add(g.number)
	o.have.add(g.free)
}

// changed tells that free GPUs came into a group, or left it.
func (s *standing) changed(by int) {
	g := s.group
	if g == nil || by == 0 {
		return
	}
	at := g.order.groups[g.free]
	if at.remove(g.number); at.len() == 0 {
		g.order.have.remove(g.free)
	}
	g.free += by
	g.order.add(g)
}

// groupTries is the number of groups of one level that are tried for a gang.
const groupTries = 16

// near calls try with the groups that could hold a gang of n members with so many
// GPUs each, the narrowest level first and the tightest group first, until one
// works out.
func (p *poolIndex) near(model, n, gpus int, try func(*standing) bool) bool {
	for _, level := range slices.Backward(p.groups) {
		order := level[model]
		if order == nil {
			continue
		}
		tries := 0
		for free := order.have.next(n * gpus); free >= 0 && tries < groupTries; free = order.have.next(free + 1) {
			at := order.groups[free]
			for i := at.next(0); i >= 0 && tries < groupTries; i = at.next(i + 1) {
				g := order.list[i]
				tries++
				if g.room(gpus) >= n && try(&g.standing) {
					return true
				}
			}
		}
	}
	return false
}

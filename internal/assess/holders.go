package assess

import (
	"cmp"
	"math"
	"slices"
)

// listed is how many of the longest idle holders are named.
const listed = 10

// holders says who holds idle GPUs.
func (x *Result) holders() {
	r := x.record
	of := map[string]*Namespace{}
	longest := map[int32]*Holder{}
	for _, d := range r.devices {
		w := r.weight(d)
		for _, s := range d.spans {
			if s.pod < 0 {
				continue
			}
			name := r.pods[s.pod].namespace
			n := of[name]
			if n == nil {
				n = &Namespace{Name: name}
				of[name] = n
			}
			h := w * r.hours(float64(s.to-s.from))
			n.Held += h
			switch s.state {
			case blind:
				n.Unknown += h
			case idle:
				n.Idle += h
				n.longest = max(n.longest, int(s.to-s.from))
				x.holder(longest, s)
			}
		}
	}
	x.Namespaces, x.Longest = []Namespace{}, []Holder{}
	for _, n := range of { // order: sorted below
		if n.longest > 0 {
			n.Longest = lengthOf(r.time(n.longest))
		}
		x.Namespaces = append(x.Namespaces, *n)
	}
	slices.SortFunc(x.Namespaces, func(a, b Namespace) int { return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(a.Name, b.Name)) })
	for _, h := range longest { // order: sorted below
		h.For = lengthOf(r.time(h.steps))
		x.Longest = append(x.Longest, *h)
	}
	slices.SortFunc(x.Longest, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(b.steps, a.steps), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	x.Longest = x.Longest[:min(listed, len(x.Longest))]
}

func (x *Result) holder(longest map[int32]*Holder, s span) {
	p := x.record.pods[s.pod]
	h := longest[s.pod]
	if h == nil {
		h = &Holder{Namespace: p.namespace, Pod: p.name, GPUs: len(p.devices), MemoryMiB: int64(math.Round(p.use.memMiB))}
		longest[s.pod] = h
	}
	if n := int(s.to - s.from); n > h.steps {
		h.steps, h.Since = n, x.record.at(int(s.from)).UTC()
	}
}

package placement

import "math/bits"

// row is all hosts, or GPUs, in one state, in cells by how much CPU their hosts
// have left: what a placement costs a host depends on that, so that looking at a
// few members of each cell is nearly as good as looking at all.
type row struct {
	gpus  bool
	n     int
	used  uint32 // bit l: cells[l] has members
	cells [cpuLevels]*cell
}

// cpuLevels is the number of steps that CPU is told apart by: two in each
// doubling between a quarter of a core and a thousand.
const cpuLevels = 26

// cpuLevel returns the step of an amount of CPU.
func cpuLevel(milli int64) int {
	if milli < 256 {
		return 0
	}
	n := bits.Len64(uint64(milli)) // 9 and up
	return min(2*(n-9)+1+int(milli>>(n-2)&1), cpuLevels-1)
}

func (r *row) enter(level, i int, has amount) {
	if r.cells[level] == nil {
		r.cells[level] = &cell{gpus: r.gpus}
	}
	r.cells[level].enter(i, has)
	r.used |= 1 << level
	r.n++
}

func (r *row) leave(level, i int) {
	r.cells[level].remove(i)
	if r.cells[level].len() == 0 {
		r.used &^= 1 << level
	}
	r.n--
}

// standing is hosts by how many GPUs of one model are free in them, and how many
// of those in one NVLink domain at most.
type standing struct {
	rows  [][]*row // [free in the host][free in one domain]
	hosts []int    // [free in the host] number of hosts
	group *group   // that it is of; nil for a pool
}

func (s *standing) row(free, linked int) *row {
	for len(s.rows) <= free {
		s.rows = append(s.rows, make([]*row, len(s.rows)+1))
		s.hosts = append(s.hosts, 0)
	}
	if s.rows[free][linked] == nil {
		s.rows[free][linked] = &row{}
	}
	return s.rows[free][linked]
}

// room is how many members of n whole GPUs fit at most, by GPUs alone.
func (s *standing) room(n int) int {
	sum := 0
	for free := n; free < len(s.hosts); free++ {
		sum += free / n * s.hosts[free]
	}
	return sum
}

// most is the largest number of free GPUs in one host.
func (s *standing) most() int {
	for free := len(s.hosts) - 1; free > 0; free-- {
		if s.hosts[free] > 0 {
			return free
		}
	}
	return 0
}

// levels is the shared GPUs of one tenant by how much of them is free.
type levels struct {
	have set // of thousandths
	rows map[int]*row
}

func (l *levels) row(free int) *row {
	if l.rows[free] == nil {
		l.rows[free] = &row{gpus: true}
	}
	return l.rows[free]
}

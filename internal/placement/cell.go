package placement

import "math/bits"

// cell is a set of hosts, or of GPUs by their hosts, that finds the next member
// whose host has enough CPU and memory without looking at each: every word of the
// set, and every 64 words together, know an amount that none under them exceeds. It
// is what hosts have in all at first, and lowered to what they have left by a search
// that looked in vain; the hosts concerned are marked, and raise it again when they
// get something back. So as long as nothing is short a change costs nothing.
type cell struct {
	set
	gpus bool     // members are GPUs
	word []amount // the most that may be under each word of the lowest level
	over []amount // the same for 64 of those
}

// amount is what is left of a host.
type amount struct{ cpu, mem int64 }

func (a amount) covers(need amount) bool { return a.cpu >= need.cpu && a.mem >= need.mem }

func (a *amount) raise(b amount) { a.cpu, a.mem = max(a.cpu, b.cpu), max(a.mem, b.mem) }

// enter adds a member whose host has so much in all.
func (s *cell) enter(i int, has amount) {
	s.add(i)
	s.raise(i, has)
}

// raise tells that a member's host may have as much as that.
func (s *cell) raise(i int, has amount) {
	w := i >> 6
	for len(s.word) <= w {
		s.word = append(s.word, amount{-1, -1})
	}
	for len(s.over) <= w>>6 {
		s.over = append(s.over, amount{-1, -1})
	}
	s.word[w].raise(has)
	s.over[w>>6].raise(has)
}

// nextFit returns the smallest member of s that is at least i and whose host has
// what is needed, or -1.
func (c *Cluster) nextFit(s *cell, i int, need amount) int {
	for i = s.next(i); i >= 0; i = s.next(i) {
		w := i >> 6
		switch {
		case !s.over[w>>6].covers(need):
			i = (w>>6 + 1) << 12
		case !s.word[w].covers(need):
			i = (w + 1) << 6
		default:
			if n := c.searchWord(s, i, need); n >= 0 {
				return n
			}
			i = (w + 1) << 6
		}
	}
	return -1
}

// searchWord looks at the members of one word from i on. When it looked at all of
// them in vain, the word knows better afterwards.
func (c *Cluster) searchWord(s *cell, i int, need amount) int {
	w := i >> 6
	all := s.levels[0][w]
	most := amount{-1, -1}
	for rest := all >> (i & 63) << (i & 63); rest != 0; rest &= rest - 1 {
		n := w<<6 + bits.TrailingZeros64(rest)
		has := c.host(s, n).left()
		if has.covers(need) {
			return n
		}
		most.raise(has)
	}
	if i&63 == 0 || all&(1<<(i&63)-1) == 0 {
		for rest := all; rest != 0; rest &= rest - 1 {
			c.host(s, w<<6+bits.TrailingZeros64(rest)).lowered = true
		}
		s.word[w] = most
		s.lowerOver(w >> 6)
	}
	return -1
}

// lowerOver sets what 64 words know together to the most that each knows.
func (s *cell) lowerOver(o int) {
	most := amount{-1, -1}
	for _, a := range s.word[o<<6 : min((o+1)<<6, len(s.word))] {
		most.raise(a)
	}
	s.over[o] = most
}

// host is that of a member.
func (c *Cluster) host(s *cell, n int) *Host {
	if s.gpus {
		n = c.GPUs[n].Host
	}
	return c.Hosts[n]
}

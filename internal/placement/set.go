package placement

import "math/bits"

// set is an ordered set of small integers: a bitmap with summary levels above
// it, so that the next member is found in a few word reads whatever the size.
// The zero value is empty.
type set struct {
	levels [][]uint64
	n      int
}

func (s *set) len() int { return s.n }

func (s *set) has(i int) bool {
	return len(s.levels) > 0 && i>>6 < len(s.levels[0]) && s.levels[0][i>>6]&(1<<(i&63)) != 0
}

func (s *set) add(i int) {
	if s.has(i) {
		return
	}
	s.n++
	s.grow(i)
	for l := range s.levels {
		s.levels[l][i>>6] |= 1 << (i & 63)
		i >>= 6
	}
}

// grow makes room for i, adding summary levels until the top is one word.
func (s *set) grow(i int) {
	if i < 0 {
		panic("a set has no negative members")
	}
	if len(s.levels) == 0 {
		s.levels = [][]uint64{nil}
	}
	for l := 0; ; l++ {
		for len(s.levels[l]) <= i>>6 {
			s.levels[l] = append(s.levels[l], 0)
		}
		if len(s.levels[l]) == 1 && l == len(s.levels)-1 {
			return
		}
		if l == len(s.levels)-1 {
			s.levels = append(s.levels, summary(s.levels[l]))
		}
		i >>= 6
	}
}

func summary(words []uint64) []uint64 {
	out := make([]uint64, (len(words)+63)/64)
	for i, w := range words {
		if w != 0 {
			out[i>>6] |= 1 << (i & 63)
		}
	}
	return out
}

func (s *set) remove(i int) {
	if !s.has(i) {
		return
	}
	s.n--
	for l := range s.levels {
		s.levels[l][i>>6] &^= 1 << (i & 63)
		if s.levels[l][i>>6] != 0 {
			return
		}
		i >>= 6
	}
}

// next returns the smallest member that is at least i, or -1.
func (s *set) next(i int) int {
	for l := 0; l < len(s.levels); l++ {
		if i>>6 >= len(s.levels[l]) {
			return -1
		}
		if w := s.levels[l][i>>6] >> (i & 63); w != 0 {
			i += bits.TrailingZeros64(w)
			for ; l > 0; l-- {
				i = i<<6 + bits.TrailingZeros64(s.levels[l-1][i])
			}
			return i
		}
		i = i>>6 + 1
	}
	return -1
}

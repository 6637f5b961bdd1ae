package placement

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestSet compares the bitmap with a sorted list, across the borders of its levels.
func TestSet(t *testing.T) {
	member := rapid.OneOf(rapid.IntRange(0, 130), rapid.SampledFrom([]int{63, 64, 4095, 4096, 4097, 262143, 262144, 300000}))
	rapid.Check(t, func(t *rapid.T) {
		var s set
		var list []int
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i := member.Draw(t, "i")
				s.add(i)
				if at, found := slices.BinarySearch(list, i); !found {
					list = slices.Insert(list, at, i)
				}
			},
			"remove": func(t *rapid.T) {
				i := member.Draw(t, "i")
				s.remove(i)
				if at, found := slices.BinarySearch(list, i); found {
					list = slices.Delete(list, at, at+1)
				}
			},
			"": func(t *rapid.T) {
				if s.len() != len(list) {
					t.Fatalf("%d members, wanted %d", s.len(), len(list))
				}
				var got []int
				for i := s.next(0); i >= 0; i = s.next(i + 1) {
					got = append(got, i)
				}
				if !slices.Equal(got, list) {
					t.Fatalf("members %v, wanted %v", got, list)
				}
				i := member.Draw(t, "probe")
				if at, found := slices.BinarySearch(list, i); s.has(i) != found || at < len(list) && s.next(i) != list[at] || at == len(list) && s.next(i) != -1 {
					t.Fatalf("has(%d) = %v, next = %d in %v", i, s.has(i), s.next(i), list)
				}
			},
		})
	})
}

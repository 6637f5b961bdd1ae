package fake

import "github.com/gpupool/gpupool/internal/work"

// freedKept is how many freed owners are remembered, to refuse a Carve that comes
// after its Free. A late command is late by seconds, so the last ones are enough.
const freedKept = 1 << 16

// freedOwners remembers the owners that were freed last. It is a ring with hash
// chains over it and not a map, because each free adds one and drops one, which in
// a map of this size cost more than the freeing itself.
type freedOwners struct {
	ring  []freedOwner
	next  int     // where the oldest is, once the ring is full
	heads []int32 // by hash: 1 + the newest in the ring, 0 = none
}

type freedOwner struct {
	owner work.Owner
	older int32 // of the same hash; as in heads
}

func (f *freedOwners) has(o work.Owner) bool {
	if f.heads == nil {
		return false
	}
	i := f.heads[hashOf(o)]
	for i != 0 && f.ring[i-1].owner != o {
		i = f.ring[i-1].older
	}
	return i != 0
}

func (f *freedOwners) add(o work.Owner) {
	if f.has(o) {
		return
	}
	if f.heads == nil {
		f.heads = make([]int32, freedKept)
	}
	i := len(f.ring)
	if i < freedKept {
		f.ring = append(f.ring, freedOwner{})
	} else {
		i = f.next
		f.next = (f.next + 1) % freedKept
		f.drop(int32(i) + 1)
	}
	head := &f.heads[hashOf(o)]
	f.ring[i] = freedOwner{o, *head}
	*head = int32(i) + 1
}

// drop takes the oldest of all, and so the last of its chain, out of it.
func (f *freedOwners) drop(i int32) {
	at := &f.heads[hashOf(f.ring[i-1].owner)]
	for *at != i {
		at = &f.ring[*at-1].older
	}
	*at = 0
}

// hashOf lets tasks of about the same time lie side by side: what is asked next is
// in the processor's cache then.
func hashOf(o work.Owner) uint64 {
	return (uint64(o.Task) + uint64(o.Epoch)*0x9e37 + uint64(o.Member)*0x79b9) % freedKept
}

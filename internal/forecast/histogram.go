package forecast

import (
	"math/bits"
	"slices"
	"time"
)

// The scale of run times: buckets of one width up to about two seconds, and from there
// eight an octave. It is all shifts of integers, so that all machines agree.
const (
	fine    = 1 << 27                // nanoseconds of the first bucket, about an eighth of a second
	octave  = 3                      // buckets an octave, as a power of two
	part    = 16                     // a place has this many bits below the bucket
	longest = time.Duration(1) << 53 // 104 days: longer counts as this
	highest = placeLimit - 1

	placeLimit place = (53 - 27 - octave + 1) << (part + octave)

	// unit is the weight of the first sample, and crumb the weight below which a bucket
	// is forgotten: a 64th of a sample.
	unit  = 1 << 10
	crumb = unit / 64
	// mostWeight is more than a bucket ever has: all of the memory, of the newest weight.
	mostWeight = 4 * unit * mostMemory
)

// place is a position on the scale. Within an octave it is linear, so that it is
// nearly a logarithm: a mean of places is nearly a geometric mean.
type place int64

// placeOf finds a run time on the scale.
func placeOf(d time.Duration) place {
	d = min(max(d, 0), longest-1)
	up := max(bits.Len64(uint64(d)/fine)-octave-1, 0)
	return place(up)<<(part+octave) + place(d)>>(27-part+up)
}

// duration is the run time at a place.
func (p place) duration() time.Duration {
	p = min(max(p, 0), highest)
	up := max(p>>(part+octave)-1, 0)
	return time.Duration((p - up<<(part+octave)) << (27 - part + up))
}

// bar is the weight of the samples in one bucket.
type bar struct {
	at     uint8
	weight uint32
}

// histogram is run times that ended, of which newer ones weigh more: each sample
// weighs 1/memory more than the one before, and when that has doubled all is halved.
type histogram struct {
	bars   []bar // by bucket; those without weight are left out
	total  uint32
	newest uint32 // weight of the newest sample
}

// add counts a sample.
func (h *histogram) add(p place, memory int) {
	h.newest = max(h.newest+h.newest/uint32(memory), unit)
	if h.newest >= 2*unit {
		h.halve()
	}
	at := uint8(p >> part)
	i, found := slices.BinarySearchFunc(h.bars, at, func(b bar, at uint8) int { return int(b.at) - int(at) })
	if !found {
		h.bars = slices.Insert(h.bars, i, bar{at: at})
	}
	h.bars[i].weight += h.newest
	h.total += h.newest
}

func (h *histogram) halve() {
	h.newest, h.total = h.newest/2, 0
	kept := h.bars[:0]
	for _, b := range h.bars {
		if b.weight /= 2; b.weight >= crumb {
			kept = append(kept, b)
			h.total += b.weight
		}
	}
	h.bars = kept
}

// below is the weight of the samples that were shorter.
func (h *histogram) below(p place) uint32 {
	sum := uint32(0)
	at := uint8(p >> part)
	for _, b := range h.bars {
		if b.at < at {
			sum += b.weight
			continue
		}
		if b.at == at {
			sum += uint32(uint64(b.weight) * uint64(p&(1<<part-1)) >> part)
		}
		break
	}
	return sum
}

// quantile is the place that a share, in ten-thousandths, of the weight above skip lies
// below, with samples spread evenly over their bucket.
func (h *histogram) quantile(skip uint32, share int) place {
	want := skip + uint32(uint64(h.total-skip)*uint64(share)/10_000)
	for _, b := range h.bars {
		if want <= b.weight {
			return place(b.at)<<part + place(want)<<part/place(b.weight)
		}
		want -= b.weight
	}
	return 0
}

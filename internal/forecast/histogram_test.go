package forecast

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func runTime() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		up := rapid.IntRange(1, 53).Draw(t, "octave")
		return time.Duration(rapid.Int64Range(0, 1<<up-1).Draw(t, "ran"))
	})
}

func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := runTime().Draw(t, "a"), runTime().Draw(t, "b")
		p := placeOf(a)
		if p < 0 || p > highest {
			t.Fatalf("%s is at place %d", a, p)
		}
		if a <= b && p > placeOf(b) {
			t.Errorf("%s is at %d, after %s at %d", a, p, b, placeOf(b))
		}
		if back := p.duration(); back > a || a-back > max(a/time.Duration(1<<part)*2, 1<<12) {
			t.Errorf("%s came back as %s", a, back)
		}
		bottom := p >> part << part
		if width := (bottom + 1<<part).duration() - bottom.duration(); width > max(a/8, fine) && bottom+1<<part < placeLimit {
			t.Errorf("the bucket of %s is %s wide", a, width)
		}
	})
}

func TestPlaceOfAnything(t *testing.T) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, longest - 1, longest, math.MaxInt64} {
		if p := placeOf(d); p < 0 || p > highest || p.duration() < 0 || p.duration() > longest {
			t.Errorf("%d is at place %d", d, p)
		}
	}
}

// naive keeps every sample with its weight.
type naive struct {
	samples []time.Duration
	memory  int
}

// weights are of all samples; each weighs 1/memory more than the one before.
func (n *naive) weights() (w []float64, total float64) {
	for i := range n.samples {
		w = append(w, math.Pow(1+1/float64(n.memory), float64(i-len(n.samples))))
		total += w[i]
	}
	return w, total
}

// share is the weight of the samples up to d, of those that are not below least.
func (n *naive) share(d, least time.Duration) float64 {
	w, _ := n.weights()
	sum, all := 0.0, 0.0
	for i, s := range n.samples {
		if s < least {
			continue
		}
		all += w[i]
		if s <= d {
			sum += w[i]
		}
	}
	return sum / all
}

// TestQuantile: a quantile is within a bucket of that of the samples themselves.
func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := naive{memory: rapid.IntRange(4, mostMemory).Draw(t, "memory")}
		n.samples = rapid.SliceOfN(runTime(), 1, 400).Draw(t, "samples")
		var h histogram
		for _, s := range n.samples {
			h.add(placeOf(s), n.memory)
		}
		sum := uint32(0)
		for i, b := range h.bars {
			if sum += b.weight; b.weight < crumb || i > 0 && h.bars[i-1].at >= b.at {
				t.Fatalf("bars %v", h.bars)
			}
		}
		if sum != h.total {
			t.Fatalf("bars weigh %d, total %d", sum, h.total)
		}
		q := rapid.IntRange(100, 9900).Draw(t, "share")
		p := h.quantile(0, q)
		bottom, top := (p >> part << part).duration(), (p>>part<<part + 1<<part).duration()
		if p&(1<<part-1) == 0 { // on an edge, it may be of the bucket below
			bottom = (p - 1<<part).duration()
		}
		if p>>part<<part+1<<part > highest { // the last bucket holds all that is longer
			top = longest
		}
		// Whole numbers and what was forgotten leave a little room.
		const slack = 0.06
		if low, high := n.share(bottom-1, 0), n.share(top, 0); float64(q)/10_000 < low-slack || float64(q)/10_000 > high+slack {
			t.Errorf("quantile %d of %d samples is in %s..%s, which samples say is %.3f..%.3f", q, len(n.samples), bottom, top, low, high)
		}
	})
}

// TestSurvivors: what is above a place is told apart within a bucket.
func TestSurvivors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := naive{memory: 128, samples: rapid.SliceOfN(runTime(), 1, 60).Draw(t, "samples")}
		var h histogram
		for _, s := range n.samples {
			h.add(placeOf(s), n.memory)
		}
		ran := rapid.SampledFrom(n.samples).Draw(t, "ran")
		p := placeOf(ran)
		skip := h.below(p)
		if skip > h.total {
			t.Fatalf("%d of %d below", skip, h.total)
		}
		edge, next := (p >> part << part).duration(), (p>>part<<part + 1<<part).duration()
		if p>>part<<part+1<<part > highest { // the last bucket holds all that is longer
			next = longest
		}
		low, high := n.share(edge-1, 0), n.share(next, 0)
		if got := float64(skip) / float64(h.total); got < low-0.06 || got > high+0.06 {
			t.Errorf("below %s: %.3f, samples say %.3f..%.3f", ran, got, low, high)
		}
		if q := h.quantile(skip, half); p-q > 1<<part/unit {
			t.Errorf("half of what outlives place %d ends at %d", p, q)
		}
	})
}

func TestNewerWeighMore(t *testing.T) {
	var h histogram
	for range 1000 {
		h.add(placeOf(time.Hour), 32)
	}
	for range 32 {
		h.add(placeOf(time.Minute), 32)
	}
	if got := h.quantile(0, half).duration(); got > 2*time.Minute {
		t.Errorf("after a memory of minutes the median is %s", got)
	}
	for range 300 {
		h.add(placeOf(time.Minute), 32)
	}
	if !slices.ContainsFunc(h.bars, func(b bar) bool { return b.at == uint8(placeOf(time.Minute)>>part) }) || len(h.bars) != 1 {
		t.Errorf("what is long ago was not forgotten: %v", h.bars)
	}
}

package forecast

import (
	"math/bits"
	"time"
)

// ratioOne stands for a task that ran just as long as was estimated: histograms of
// ratios are histograms of run times on this scale.
const ratioOne = time.Duration(1) << 40

// ratio is run time by estimate.
func ratio(ran, estimate time.Duration) time.Duration { return product(ran, ratioOne, estimate) }

// scaled is the run time that a ratio makes of an estimate.
func scaled(ratio, estimate time.Duration) time.Duration { return product(ratio, estimate, ratioOne) }

// product is a*b/c, at most longest. All are positive, or a is 0.
func product(a, b, c time.Duration) time.Duration {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return longest
	}
	q, _ := bits.Div64(high, low, uint64(c))
	return time.Duration(min(q, uint64(longest)))
}

// ratios is how the tenant's estimates turned out; nil if there are none, or if the job
// has no estimate to correct.
func (f *Forecaster) ratios(j *Job, k *kinds) *entry {
	if j.Estimate <= 0 {
		return nil
	}
	return f.store.of[k.ratios()]
}

// estimated tells whether to go by the user's estimate: where estimates like it turned
// out nearer to the truth than history e, and where that is not known yet and e is not
// of tasks of this name, or of few.
func (f *Forecaster) estimated(j *Job, e, ratios *entry) bool {
	if j.Estimate <= 0 {
		return false
	}
	const few = 8
	thin := !f.trusts(e) || e.samples < few || e.key.Basis != OwnModel && e.key.Basis != OwnTask
	if !f.trusts(ratios) || ratios.guess == ratios.history {
		return thin
	}
	return ratios.guess < ratios.history
}

// guess is the estimate as the tenant's estimates turn out, of a task that has run for
// a while. Before that is known it is taken at its word, and twice that for P90.
func (f *Forecaster) guess(j *Job, ratios *entry, ran time.Duration) Forecast {
	estimate := min(j.Estimate, longest)
	if !f.trusts(ratios) {
		return Forecast{P50: estimate, P90: min(2*estimate, longest), Typical: estimate, Basis: Estimate}
	}
	p, skip := place(0), uint32(0)
	if ran > 0 {
		p = placeOf(ratio(ran, estimate))
		skip = ratios.past.below(p)
	}
	x := f.tell(ratios, skip, p)
	x.P50, x.P90, x.Typical = scaled(x.P50, estimate), scaled(x.P90, estimate), scaled(x.Typical, estimate)
	return x
}

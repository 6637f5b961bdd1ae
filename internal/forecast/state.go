package forecast

import (
	"fmt"
	"slices"
)

// State is all that a Forecaster has learned. Equal histories give equal states, and
// these the same JSON.
type State struct {
	Within int `json:"within,omitempty"`
	Of     int `json:"of,omitempty"`
	Margin int `json:"margin,omitempty"`
	// Kinds that were learned of once, and those learned of more often, each from the
	// one that was longest not used: the order in which they are dropped.
	Once  []Kind `json:"once,omitempty"`
	Often []Kind `json:"often,omitempty"`
}

// Kind is what is known of one kind of task.
type Kind struct {
	key
	Samples int      `json:"samples"`
	Newest  uint32   `json:"newest"` // weight of the newest sample
	Recent  place    `json:"recent"`
	Lately  place    `json:"lately"`
	Guess   place    `json:"guess,omitempty"`
	History place    `json:"history,omitempty"`
	Bars    []uint32 `json:"bars"` // bucket, weight, bucket, weight, …
}

// State returns what was learned, to be kept with a snapshot.
func (f *Forecaster) State() State {
	return State{
		Within: f.within, Of: f.of, Margin: int(f.margin),
		Once: f.store.once.kinds(), Often: f.store.often.kinds(),
	}
}

func (l *list) kinds() []Kind {
	all := make([]Kind, 0, l.length)
	for e := l.oldest; e != nil; e = e.newer {
		k := Kind{key: e.key, Samples: e.samples, Newest: e.past.newest,
			Recent: e.recent, Lately: e.lately, Guess: e.guess, History: e.history}
		k.Bars = make([]uint32, 0, 2*len(e.past.bars))
		for _, b := range e.past.bars {
			k.Bars = append(k.Bars, uint32(b.at), b.weight)
		}
		all = append(all, k)
	}
	return all
}

// Restore makes a Forecaster that knows what State returned. If that is more than the
// settings keep, the longest not used is dropped.
func Restore(c Config, s State) (*Forecaster, error) {
	f := New(c)
	if s.Within < 0 || s.Of < s.Within {
		return nil, fmt.Errorf("forecast state: %d of %d tasks ended within their P90: expected 0 or more, and not more than all", s.Within, s.Of)
	}
	if s.Margin < leastMargin || s.Margin > mostMargin {
		return nil, fmt.Errorf("forecast state: margin %d: expected %d to %d", s.Margin, leastMargin, mostMargin)
	}
	f.within, f.of, f.margin = s.Within, s.Of, place(s.Margin)
	if err := f.store.restore(&f.store.once, s.Once); err != nil {
		return nil, err
	}
	if err := f.store.restore(&f.store.often, s.Often); err != nil {
		return nil, err
	}
	for len(f.store.of) > f.store.keep {
		f.store.drop()
	}
	return f, nil
}

func (s *store) restore(l *list, all []Kind) error {
	for i := range all {
		e, err := all[i].entry()
		if err != nil {
			return fmt.Errorf("forecast state: kind %+v: %w", all[i].key, err)
		}
		if s.of[e.key] != nil {
			return fmt.Errorf("forecast state: kind %+v comes twice: expected each once", e.key)
		}
		s.of[e.key] = e
		l.push(e)
	}
	return nil
}

// entry checks a kind and makes it an entry.
func (k *Kind) entry() (*entry, error) {
	bases := []Basis{OwnModel, OwnTask, OwnRequest, OwnTenant, AnyoneRequest, Anyone, Estimate}
	if !slices.Contains(bases, k.Basis) {
		return nil, fmt.Errorf("basis %q is not known: expected one of %q", k.Basis, bases)
	}
	if k.Samples < 1 || k.Samples > mostSamples {
		return nil, fmt.Errorf("%d samples: expected 1 to %d", k.Samples, mostSamples)
	}
	for _, p := range []place{k.Recent, k.Lately, k.Guess, k.History} {
		if p < 0 || p > highest {
			return nil, fmt.Errorf("place %d: expected 0 to %d", p, highest)
		}
	}
	for _, s := range []string{k.Tenant, k.Name, k.Model, k.Shape.Profile} {
		if s != clean(s) {
			return nil, fmt.Errorf("text %q: expected UTF-8 of at most %d bytes", s, longestText)
		}
	}
	past, err := histogramOf(k.Newest, k.Bars)
	if err != nil {
		return nil, err
	}
	return &entry{key: k.key, samples: k.Samples, past: past,
		recent: k.Recent, lately: k.Lately, guess: k.Guess, history: k.History}, nil
}

func histogramOf(newest uint32, bars []uint32) (histogram, error) {
	h := histogram{newest: newest}
	if newest < unit || newest >= 2*unit {
		return h, fmt.Errorf("newest weight %d: expected %d to %d", newest, unit, 2*unit-1)
	}
	if len(bars) == 0 || len(bars)%2 != 0 {
		return h, fmt.Errorf("%d numbers of buckets: expected pairs of a bucket and its weight", len(bars))
	}
	h.bars = make([]bar, 0, len(bars)/2)
	after := -1
	for i := 0; i < len(bars); i += 2 {
		at, weight := bars[i], bars[i+1]
		if int64(at) <= int64(after) || at > uint32(highest>>part) || weight < crumb || weight > mostWeight {
			return h, fmt.Errorf("bucket %d of weight %d after bucket %d: expected buckets in order up to %d, of weight %d to %d",
				at, weight, after, highest>>part, crumb, mostWeight)
		}
		h.bars = append(h.bars, bar{uint8(at), weight})
		h.total += weight
		after = int(at)
	}
	return h, nil
}

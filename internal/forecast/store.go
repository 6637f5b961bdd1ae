package forecast

const (
	mostSamples   = 1 << 30
	recentMemory  = 8  // of tasks that make "of late"
	compareMemory = 32 // of tasks that tell whether estimates are better than history
)

// entry is what ended tasks of one key taught.
type entry struct {
	key     key
	samples int
	past    histogram
	recent  place // geometric mean of the last few
	lately  place // the same over the memory
	// Of ratios only: how far off the tenant's estimates were lately once corrected,
	// and how far off history was for the same tasks.
	guess, history place

	older, newer *entry
	list         *list
}

// list is entries by their last use.
type list struct {
	oldest, newest *entry
	length         int
}

func (l *list) push(e *entry) {
	e.list, e.older, e.newer = l, l.newest, nil
	if l.newest == nil {
		l.oldest = e
	} else {
		l.newest.newer = e
	}
	l.newest = e
	l.length++
}

func (l *list) remove(e *entry) {
	if e.older == nil {
		l.oldest = e.newer
	} else {
		e.older.newer = e.newer
	}
	if e.newer == nil {
		l.newest = e.older
	} else {
		e.newer.older = e.older
	}
	l.length--
}

// store keeps the entries of lately used keys. Keys used once stand apart, and may fill
// a quarter of it only: a stream of names that never come again costs the known ones
// nothing more.
type store struct {
	keep        int
	of          map[key]*entry
	once, often list
}

// use returns the entry of a key, made if need be, as the newest.
func (s *store) use(k key) *entry {
	e := s.of[k]
	if e != nil {
		e.list.remove(e)
		s.often.push(e)
		return e
	}
	e = &entry{key: k}
	s.of[k] = e
	s.once.push(e)
	if len(s.of) > s.keep {
		s.drop()
	}
	return e
}

func (s *store) drop() {
	from := &s.often
	if from.length == 0 || s.once.length > s.keep/4 {
		from = &s.once
	}
	e := from.oldest
	from.remove(e)
	delete(s.of, e.key)
}

// learn counts a run time.
func (e *entry) learn(p place, memory int) {
	e.samples = min(e.samples+1, mostSamples)
	e.past.add(p, memory)
	e.recent += (p - e.recent) / place(min(e.samples, recentMemory))
	e.lately += (p - e.lately) / place(min(e.samples, memory))
}

// typical is midway between what is usual and what was so of late: either alone ranks
// tasks worse.
func (e *entry) typical() place { return (e.recent + e.lately) / 2 }

// compare notes how far the corrected estimate and history were off for one task.
func (e *entry) compare(guess, history place) {
	n := place(min(e.samples, compareMemory))
	e.guess += (max(guess, -guess) - e.guess) / n
	e.history += (max(history, -history) - e.history) / n
}

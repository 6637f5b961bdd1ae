package sim

import (
	"github.com/gpupool/gpupool/internal/elastic"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/trace"
	"github.com/gpupool/gpupool/internal/work"
)

// measured tells the engine what a task used since it was last measured.
func (s *simulation) measured(now work.Time, l *life, compute float64, evs *events) {
	evs.list = append(evs.list, engine.Usage{Samples: s.samples(nil, now, l, compute)})
}

func (s *simulation) samples(out []engine.UsageSample, now work.Time, l *life, compute float64) []engine.UsageSample {
	t := s.writer.Engine.Task(l.task)
	if t == nil || t.Lease() == nil {
		return out
	}
	for i, part := range t.Lease().Parts {
		of := compute
		if held := part.Milli() * len(t.Lease().Parts); held > 0 { // it may hold less, or more, than it asked for
			of = min(1, compute*float64(s.rec.rows[l.task-1].asked)/float64(held))
		}
		out = append(out, engine.UsageSample{Owner: work.Owner{Task: l.task, Epoch: t.Epoch, Member: i},
			For: now.Sub(l.since), Compute: of, MemMiB: s.memory(l.x)})
	}
	l.since = now
	return out
}

// memory is the GPU memory that a task uses.
func (s *simulation) memory(x *trace.Task) int64 {
	if x.UsedMiB > 0 {
		return x.UsedMiB
	}
	return s.rec.memMiB
}

func (s *simulation) parkPrice(id work.TaskID) elastic.Price {
	return elastic.ParkPrice(s.memory(&s.setup.Trace.Tasks[s.row[id-1]]))
}

func (s *simulation) restartPrice(id work.TaskID) elastic.Price {
	return elastic.RestartPrice(s.memory(&s.setup.Trace.Tasks[s.row[id-1]]))
}

func (s *simulation) beatSoon(now work.Time) {
	if !s.beats {
		s.beats = true
		s.due.add(now, nextLook, beat, work.Owner{})
	}
}

// beat measures all idle tasks, as a driver does that looks at its GPUs now and then.
func (s *simulation) beat(now work.Time, evs *events) {
	s.beats = false
	var all []engine.UsageSample
	for _, l := range s.lives {
		if l != nil && l.state == running && len(l.at) == 0 && len(l.x.Requests) > 0 {
			all = s.samples(all, now, l, 0)
		}
	}
	if len(all) > 0 {
		evs.list = append(evs.list, engine.Usage{Samples: all})
		s.beatSoon(now)
	}
}

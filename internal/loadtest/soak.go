package loadtest

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// Soak is what a long run did to the server's memory.
type Soak struct {
	Tasks  int     `json:"tasks"`
	Points []Point `json:"points"`
	Growth float64 `json:"growth"` // of the mean of the last quarter over that of the second, less 1
	Flat   bool    `json:"flat"`   // that is at most flatWithin
}

// Point is one look.
type Point struct {
	Tasks  int     `json:"tasks"` // that were submitted until then
	S      float64 `json:"s"`
	RSSMiB float64 `json:"rss_mib"`
}

// Of a soak.
const (
	soakLooks  = 40
	flatWithin = 0.10
)

// RunSoak submits and cancels so many tasks with so many clients, and looks now and then at the
// memory of the server, in bytes.
func RunSoak(ctx context.Context, api API, o Options, tasks int, memory func(context.Context) (int64, error)) (*Result, error) {
	o = o.withDefaults()
	o.Scenario, o.Keep, o.Run, o.Duration, o.Queries = Offline, false, false, 1, tasks
	l, err := newLoad(api, o)
	if err != nil {
		return nil, err
	}
	s := &Soak{Tasks: tasks}
	look := func(done int) error {
		m, err := memory(ctx)
		if err != nil {
			return fmt.Errorf("the server's memory is not known: %w", err)
		}
		s.Points = append(s.Points, Point{done, time.Since(l.began).Seconds(), float64(m) / (1 << 20)})
		return nil
	}
	l.began = time.Now()
	if err := look(0); err != nil {
		return nil, err
	}
	for done := 0; done < tasks; {
		n := min((tasks+soakLooks-1)/soakLooks, tasks-done)
		if err := l.some(ctx, n); err != nil {
			return nil, err
		}
		done += n
		if err := look(done); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(done, tasks)
		}
	}
	l.r.Soak = s
	s.judge()
	return l.result(time.Since(l.began))
}

// some submits and cancels n tasks.
func (l *load) some(ctx context.Context, n int) error {
	var all errgroup.Group
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	for range l.o.Clients {
		all.Go(func() error {
			for range todo {
				if err := ctx.Err(); err != nil {
					return err
				}
				start := time.Now()
				id, ok := l.submit(ctx)
				l.count(time.Since(start), []bool{ok})
				l.drop(ctx, id)
			}
			return nil
		})
	}
	return all.Wait()
}

// judge compares the last quarter with the second: the first is for what a server keeps of
// ended tasks to fill up.
func (s *Soak) judge() {
	n := len(s.Points)
	mean := func(ps []Point) float64 {
		sum := 0.0
		for _, p := range ps {
			sum += p.RSSMiB
		}
		return sum / float64(max(len(ps), 1))
	}
	before, after := mean(s.Points[n/4:n/2]), mean(s.Points[3*n/4:])
	if before > 0 {
		s.Growth = after/before - 1
	}
	s.Flat = n >= 8 && before > 0 && s.Growth <= flatWithin
}

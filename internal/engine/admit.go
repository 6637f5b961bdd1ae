package engine

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// drain is when the last tasks left the line of a pool, to say how fast it moves.
type drain struct {
	at [16]work.Time // a ring
	n  int
}

func (d *drain) left(now work.Time) {
	d.at[d.n%len(d.at)] = now
	d.n++
}

// forOne is how long it takes until one more has left, as observed; 0 = not known.
func (d *drain) forOne(now work.Time) time.Duration {
	k := min(d.n, len(d.at))
	if k < 2 {
		return 0
	}
	first := d.at[(d.n-k)%len(d.at)]
	return now.Sub(first) / time.Duration(k)
}

// Bounds of the time to retry that a refusal names.
const (
	leastRetry   = time.Second
	mostRetry    = time.Hour
	unknownRetry = 30 * time.Second // nothing has left the line yet
)

// admit refuses n tasks that the pool's queue has no place for, or that would pass
// what their tenant may have waiting. Nothing of a refused submission is kept.
func (e *Engine) admit(p *pool, x *work.Tenant, s *work.Spec, n int) error {
	if use := e.use[x.Name]; x.MaxWaiting > 0 && use.waiting+n > x.MaxWaiting {
		return work.Errorf(work.CodeLimit, "tenant %s has %d tasks waiting and may have %d, and this adds %d: wait until some have started, submit fewer, or ask an admin for a higher limit",
			x.Name, use.waiting, x.MaxWaiting, n)
	}
	if s.Priority == work.Low && p.AskAt > 0 && p.waiting >= p.AskAt {
		return e.busy(p, p.waiting-p.AskAt+1, "pool %s takes no low priority while %d or more tasks wait, and %d do", p.Name, p.AskAt, p.waiting)
	}
	most := p.Capacity
	if p.BackPressure > 0 && s.Priority != work.High {
		most = int(float64(p.Capacity) * p.BackPressure)
	}
	if p.Capacity == 0 || p.waiting+n <= most {
		return nil
	}
	full := fmt.Sprintf("the queue of pool %s is full: %d tasks wait, and it holds %d", p.Name, p.waiting, p.Capacity)
	if most < p.Capacity {
		full = fmt.Sprintf("the queue of pool %s takes only high priority beyond %d waiting tasks (%g %% of %d), and %d wait",
			p.Name, most, p.BackPressure*100, p.Capacity, p.waiting)
	}
	if n > most {
		return work.Errorf(work.CodeBusy, "%s; %d would never fit at once: submit fewer together", full, n)
	}
	return e.busy(p, p.waiting+n-most, "%s", full)
}

// busy refuses tasks for now: there is a place once so many have left the line.
func (e *Engine) busy(p *pool, leave int, format string, args ...any) error {
	err := work.Errorf(work.CodeBusy, format, args...)
	err.Retry = unknownRetry
	if each := p.drained.forOne(e.now); each > 0 {
		err.Retry = time.Duration(leave) * each
	}
	err.Retry = min(max(err.Retry, leastRetry), mostRetry).Round(time.Second)
	err.Msg += "; try again in " + err.Retry.String()
	return err
}

// askForMore calls the scale-out hook of a pool that has too many waiting, at most
// once in its cooldown.
func (e *Engine) askForMore(p *pool) {
	if p.ScaleOutEvery == 0 || !p.pressed() || p.asked != 0 && e.now < p.asked.Add(p.ScaleOutEvery) {
		return
	}
	milli := 0
	for _, l := range p.queue.AllLines() { // order: a sum of whole numbers
		for _, x := range l.Items() {
			milli += e.cluster.LeastMilli(p.Name, p.wants(e.tasks[x.ID]))
		}
	}
	f := AskedForMore{Pool: p.Name, Waiting: p.queue.Len(), GPUs: gpus(milli)}
	e.emit(f)
	e.command(ScaleOutCmd(f))
}

package nvidia

import (
	"context"
	"slices"
	"sync"
)

// locks are named. Who needs several takes them in the order of their names, so that
// nobody waits for ever.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when it is let go
}

// take waits for the names and returns how to let go of them.
func (l *locks) take(ctx context.Context, names ...string) (func(), error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for i, n := range names {
		if err := l.one(ctx, n); err != nil {
			l.drop(names[:i])
			return nil, err
		}
	}
	return func() { l.drop(names) }, nil
}

func (l *locks) one(ctx context.Context, name string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.mu.Lock()
		if l.held == nil {
			l.held = map[string]chan struct{}{}
		}
		free := l.held[name]
		if free == nil {
			l.held[name] = make(chan struct{})
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *locks) drop(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		close(l.held[n])
		delete(l.held, n)
	}
}

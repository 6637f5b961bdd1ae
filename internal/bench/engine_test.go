package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// BenchmarkDecision is one decision of bench engine: place one task, and end as many
// as keep the cluster three quarters full.
func BenchmarkDecision(b *testing.B) {
	for _, gpus := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(gpus), func(b *testing.B) {
			d := newDecider(gpus)
			d.fill()
			b.ReportAllocs()
			for b.Loop() {
				d.decide()
				for d.used > d.all*3/4 {
					d.end()
				}
			}
		})
	}
}

// TestEngine: a small cluster is measured, every decision is sound, and what is asked
// of a full one is answered.
func TestEngine(t *testing.T) {
	r, err := Engine(t.Context(), EngineOptions{GPUs: []int{80}})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Sizes[0]
	if s.Hosts != 10 || s.DecisionsPerS <= 0 || s.BytesPerGPU <= 0 || s.ReclaimTasks < 1 || s.InfeasibleGangMS < 0 || s.TasksPerS <= 0 {
		t.Errorf("got %+v", s)
	}
	d := newDecider(80)
	d.fill()
	if err := d.c.Check(); err != nil {
		t.Error(err)
	}
	if err := fullCluster(80).c.Check(); err != nil {
		t.Error(err)
	}
}

func TestEngineOptions(t *testing.T) {
	for _, n := range []int{0, 8, 81, -8, 1 << 40} {
		_, err := Engine(t.Context(), EngineOptions{GPUs: []int{n}})
		if unusable := (*OptionError)(nil); !errors.As(err, &unusable) {
			t.Errorf("%d GPUs: got %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Engine(ctx, EngineOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

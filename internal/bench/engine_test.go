package bench

import (
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

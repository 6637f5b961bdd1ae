package sim

import (
	"fmt"
	"math"
	"time"

	"github.com/gpupool/gpupool/internal/books"
	"github.com/gpupool/gpupool/internal/engine"
)

// Saved is what gpupool report would say of a run: what was held, beside what a static site
// would have held for the tasks at the times at which they ran here. It is not the other
// column, in which they ran when a static site could run them. Of a run of more than
// books.Keep days it is the last of them.
type Saved struct {
	StaticHours float64  `json:"static_gpu_hours"`
	HeldHours   float64  `json:"held_gpu_hours"`
	Saving      float64  `json:"saving"`
	StaticPeak  int      `json:"static_gpus_peak"`
	StaticMean  float64  `json:"static_gpus_mean"`
	InUsePeak   int      `json:"in_use_gpus_peak"`
	InUseMean   float64  `json:"in_use_gpus_mean"`
	StaticIdle  *float64 `json:"static_idle_share,omitempty"` // of what was measured; nil = nothing was
	HeldIdle    *float64 `json:"held_idle_share,omitempty"`
	Unknown     float64  `json:"unknown_share"` // of static's GPU hours
}

// savedOf reads the books of an engine after a run that took so long.
func savedOf(e *engine.Engine, took time.Duration) Saved {
	var pools [][]books.Day
	for _, p := range e.Books(0, math.MaxInt) {
		pools = append(pools, p.Whole)
	}
	d := books.Sum(pools...)
	hours := func(n int64) float64 { return float64(n) / float64(time.Hour/time.Microsecond) }
	idle := func(a books.Amounts) *float64 {
		known := a[books.Idle] + a[books.Busy]
		if known == 0 {
			return nil
		}
		x := float64(a[books.Idle]) / float64(known)
		return &x
	}
	s := Saved{StaticHours: hours(d.Static.Sum()), HeldHours: hours(d.Held.Sum()), StaticPeak: int(d.PeakStatic), InUsePeak: int(d.PeakInUse),
		StaticIdle: idle(d.Static), HeldIdle: idle(d.Held)}
	if took > 0 {
		s.StaticMean, s.InUseMean = s.StaticHours/took.Hours(), hours(d.InUse)/took.Hours()
	}
	if s.StaticHours > 0 {
		s.Saving, s.Unknown = 1-s.HeldHours/s.StaticHours, hours(d.Static[books.Unknown])/s.StaticHours
	}
	return s
}

func (s Saved) String() string {
	share := func(x *float64) string {
		if x == nil {
			return "unknown"
		}
		return fmt.Sprintf("%.1f %%", 100**x)
	}
	return fmt.Sprintf("as gpupool report has it: for the tasks when they ran pooled, static would have held %.0f GPU hours and needed %d GPUs at once; %.0f were held (%.1f %% saved), %d GPUs were in use at once; idle share of static %s, of held %s, not measured %.1f %%",
		s.StaticHours, s.StaticPeak, s.HeldHours, 100*s.Saving, s.InUsePeak, share(s.StaticIdle), share(s.HeldIdle), 100*s.Unknown)
}

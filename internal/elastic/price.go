package elastic

import "time"

// Price is what a move takes: the time in which the GPUs do nothing for anybody.
type Price struct {
	Suspend time.Duration
	Resume  time.Duration
}

// Of suspending: a second to stop and to hand over, and the GPU memory over PCIe at the
// rate with which the published system plans: 15 % of 64 GiB/s (Aegaeon's artifact, H800;
// ../shared/facts/serving.md 1.5). Measured suspends of CUDA processes lie around it: 5 s for
// a small vLLM, 12 s for 31 GB (../shared/facts/nvidia.md 5).
const (
	handOver  = time.Second
	mibPerSec = 9830 // 9.6 GiB
)

// ParkPrice is what parking and waking a task takes, by the GPU memory that it holds.
func ParkPrice(memMiB int64) Price {
	move := handOver + time.Duration(float64(memMiB)/mibPerSec*float64(time.Second))
	return Price{Suspend: move, Resume: move}
}

// Total is there and back.
func (p Price) Total() time.Duration { return p.Suspend + p.Resume }

// Of a restart: nobody published what it takes, so this is assumed: half a minute until the
// program is where it begins to compute, and its GPU memory written to and read from a file
// system that many share, at 1 GiB/s.
const (
	startUp      = 30 * time.Second
	storeMiBSecs = 1024
)

// RestartPrice is what it takes a task to save its work, end and start again.
func RestartPrice(memMiB int64) Price {
	store := time.Duration(float64(memMiB) / storeMiBSecs * float64(time.Second))
	return Price{Suspend: store, Resume: startUp + store}
}

// Worth reports whether a task that gets so many thousandths of GPUs for a time, or sooner
// by it, gains more than a move costs, in GPU milliseconds.
func Worth(gain time.Duration, milli int, price int64) bool {
	return int64(gain.Seconds()*float64(milli)) > price
}

// WorthParking reports whether a task has been idle for so long that its GPUs are worth
// taking, for someone who waits for them: as long as it costs to take them and give them
// back. Nobody knows how long it will be idle for still; who waits for exactly the price
// never loses more than twice what someone would who knew (ski rental: Karlin et al.,
// Competitive snoopy caching, Algorithmica 1988).
func WorthParking(idle time.Duration, p Price) bool { return idle >= p.Total() }

// Command asynq enqueues tasks with hibiken/asynq, as fast as so many clients can, and prints
// as JSON how many a second Redis has acknowledged, and how long each took. It is what make
// bench-load sets gpupool loadtest beside, and a module of its own so that asynq and its
// dependencies stay out of gpupool.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	clients := flag.Int("clients", 64, "clients at once")
	duration := flag.Duration("duration", 10*time.Second, "how long")
	flag.Parse()
	if err := run(*redis, *clients, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "asynq:", err)
		os.Exit(1)
	}
}

func run(redis string, clients int, duration time.Duration) error {
	c := asynq.NewClient(asynq.RedisClientOpt{Addr: redis, PoolSize: clients})
	defer c.Close()
	// About what a submission of gpupool loadtest says.
	payload := []byte(`{"name":"loadtest","tenant":"load","gpus":"1","command":["true"],"hold":true}`)
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	began := time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			var mine []time.Duration
			for time.Since(began) < duration {
				start := time.Now()
				if _, err := c.Enqueue(asynq.NewTask("load", payload), asynq.MaxRetry(0)); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			times = append(times, mine...)
			mu.Unlock()
		})
	}
	all.Wait()
	lasted := time.Since(began)
	if failed != nil {
		return failed
	}
	slices.Sort(times)
	ms := func(p float64) float64 { return float64(times[int(float64(len(times))*p)]) / 1e6 }
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"clients": clients, "acknowledged": len(times), "lasted_s": lasted.Seconds(), "acknowledged_per_s": float64(len(times)) / lasted.Seconds(),
		"p50_ms": ms(0.5), "p99_ms": ms(0.99),
	})
}

package queue_test

import (
	"fmt"
	"time"

	"github.com/gpupool/gpupool/internal/queue"
	"github.com/gpupool/gpupool/internal/work"
)

// The worked example of docs/queue.md.
func ExampleRules_Turn() {
	at := func(clock string) work.Time {
		t, _ := time.Parse("2006-01-02 15:04", "2026-12-02 "+clock)
		return work.TimeOf(t)
	}
	const weight = 0.7
	var r queue.Rules
	for _, x := range []struct {
		name          string
		job           queue.Job
		had, entitled float64
	}{
		{"a: normal, 10 min", queue.Job{Since: at("12:00"), Priority: work.Normal, Length: 10 * time.Minute}, 0.25, 0.5},
		{"b: normal, 4 h", queue.Job{Since: at("11:00"), Priority: work.Normal, Length: 4 * time.Hour}, 0.25, 0.5},
		{"c: high, 4 h", queue.Job{Since: at("12:00"), Priority: work.High, Length: 4 * time.Hour}, 0.25, 0.5},
		{"d: normal, 10 min, of a tenant that had twice its share", queue.Job{Since: at("12:00"), Priority: work.Normal, Length: 10 * time.Minute}, 1, 0.5},
		{"e: normal, 4 h, must start by 14:00 to meet its deadline", queue.Job{Since: at("11:00"), Priority: work.Normal, Length: 4 * time.Hour, Latest: at("14:00")}, 0.25, 0.5},
	} {
		turn := r.Turn(x.job, weight) - r.HeadStart(x.had, x.entitled, weight)
		fmt.Println(turn.Std().Format("Mon 15:04"), x.name)
	}
	// Output:
	// Wed 05:12 a: normal, 10 min
	// Wed 13:24 b: normal, 4 h
	// Sun 19:12 c: high, 4 h
	// Thu 02:48 d: normal, 10 min, of a tenant that had twice its share
	// Sun 11:36 e: normal, 4 h, must start by 14:00 to meet its deadline
}

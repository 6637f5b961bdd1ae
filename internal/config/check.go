package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

func (c Config) check() error {
	seen := map[string]bool{}
	for i, p := range c.Pools {
		switch {
		case p.Name == "" || strings.ContainsAny(p.Name, " \t\n/"):
			return fmt.Errorf("pools[%d].name: expected one word without spaces or slashes, got %q", i, p.Name)
		case seen[p.Name]:
			return fmt.Errorf("pools[%d].name: pool %s is named twice", i, p.Name)
		case !slices.Contains(work.Modes(), work.PoolMode(p.Mode)):
			return fmt.Errorf("pools[%d].mode: expected static, shadow or dynamic, got %q", i, p.Mode)
		}
		seen[p.Name] = true
	}
	for i, p := range c.Pools {
		if err := p.checkLending(i, seen); err != nil {
			return err
		}
	}
	if err := c.Queue.ScaleOut.check(); err != nil {
		return err
	}
	for _, x := range append(append(append(c.poolRanges(), c.Elastic.ranges()...), c.Journal.ranges()...), []inRange{
		{"server.keep_ended", 1, 1e7, float64(c.Server.Keep)},
		{"queue.priority_weight", 0, 1, c.Queue.PriorityWeight},
		{"queue.capacity", 0, 1e6, float64(c.Queue.Capacity)},
		{"queue.ask_for_more_at", 0, 1e6, float64(c.Queue.AskForMore)},
		{"queue.preemptions_per_hour", 0, 1e6, float64(c.Queue.Preemptions)},
		{"queue.scale_out.cooldown (seconds)", 10, 86400, time.Duration(c.Queue.ScaleOut.Cooldown).Seconds()},
		{"allocation.retries", 1, 1000, float64(c.Allocation.Retries)},
		{"allocation.timeout (seconds)", 0.1, 86400, time.Duration(c.Allocation.Timeout).Seconds()},
		{"sharing.tasks_per_gpu", 1, 64, float64(c.Sharing.Tasks)},
		{"alerts.waiting_above", 0, 1e6, float64(c.Alerts.Waiting)},
		{"alerts.carves_failed_above", 0, 1e6, float64(c.Alerts.Carves)},
		{"alerts.journal_above (seconds)", 1e-6, 60, time.Duration(c.Alerts.Journal).Seconds()},
		{"alerts.overdue_above (seconds)", 0.1, 86400, time.Duration(c.Alerts.Overdue).Seconds()},
		{"podman.pids", 16, 4e6, float64(c.Podman.Pids)},
		{"limits.calls_per_second", 0, 1e6, c.Limits.Calls},
		{"limits.burst", 1, 1e6, float64(c.Limits.Burst)},
		{"limits.open_calls", 0, 1e6, float64(c.Limits.AtOnce)},
		{"limits.unknown_per_minute", 0, 1e6, c.Limits.Failed},
		{"audit.file_size (MiB)", 1, 1e6, float64(c.Audit.Size)},
		{"audit.files", 1, 1e6, float64(c.Audit.Files)},
		{"metrics.tenants_at_most", 1, 1e5, float64(c.Metrics.Tenants)},
		{"metrics.gpus_at_most", 1, 1e6, float64(c.Metrics.GPUs)},
	}...) {
		if !(x.got >= x.low && x.got <= x.high) { // a NaN is outside too
			return fmt.Errorf("%s: expected %g to %g, got %g", x.name, x.low, x.high, x.got)
		}
	}
	if err := c.Journal.check(); err != nil {
		return err
	}
	if err := c.Metrics.check(); err != nil {
		return err
	}
	if err := c.checkContainers(); err != nil {
		return err
	}
	if err := c.Tracing.check(); err != nil {
		return err
	}
	if err := c.checkAccess(); err != nil {
		return err
	}
	if err := c.Elastic.check(); err != nil {
		return err
	}
	for _, x := range []struct{ name, got string }{{"smallest_slice", c.Allocation.Smallest}, {"largest_slice", c.Allocation.Largest}} {
		if r, err := work.ParseGPUs(x.got); err != nil || r.Milli == 0 && r.GPUs != 1 {
			return fmt.Errorf("allocation.%s: expected a fraction such as 1/7 or 0.5, got %q", x.name, x.got)
		}
	}
	return nil
}

// inRange is a number and what it may be.
type inRange struct {
	name      string
	low, high float64
	got       float64
}

// poolRanges are the numbers of the pools.
func (c Config) poolRanges() (out []inRange) {
	for i, p := range c.Pools {
		name := func(key string) string { return fmt.Sprintf("pools[%d].%s", i, key) }
		out = append(out,
			inRange{name("priority_weight"), 0, 1, or(p.PriorityWeight, 0)},
			inRange{name("capacity"), 0, 1e6, float64(or(p.Capacity, 0))},
			inRange{name("ask_for_more_at"), 0, 1e6, float64(or(p.AskForMore, 0))},
			inRange{name("lend_gpus"), 0, 1e6, p.LendGPUs},
			inRange{name("reserve_gpus"), 0, 1e6, p.ReserveGPUs})
	}
	return out
}

// checkLending checks the i-th pool against the names of all.
func (p Pool) checkLending(i int, known map[string]bool) error {
	for k, from := range p.BorrowFrom {
		switch {
		case from == p.Name:
			return fmt.Errorf("pools[%d].borrow_from: pool %s cannot borrow from itself", i, from)
		case !known[from]:
			return fmt.Errorf("pools[%d].borrow_from: pool %q is not among the pools of this file", i, from)
		case slices.Contains(p.BorrowFrom[:k], from):
			return fmt.Errorf("pools[%d].borrow_from: pool %s is named twice", i, from)
		}
	}
	return nil
}

func (s ScaleOut) check() error {
	if len(s.Command) > 0 && s.Command[0] == "" {
		return errors.New("queue.scale_out.command: its first word is empty: give the program to run")
	}
	if u, err := url.Parse(s.Webhook); s.Webhook != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return errors.New("queue.scale_out.webhook: expected an address such as https://example.org/scale-out") // it may hold a secret: not shown
	}
	return nil
}

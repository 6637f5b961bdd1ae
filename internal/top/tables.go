package top

import (
	"fmt"
	"strings"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// share of what there is; 0 of nothing.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// ofMost writes a number, and the most that it may be.
func ofMost(n, most int) string {
	if most > 0 {
		return fmt.Sprintf("%d of %d", n, most)
	}
	return fmt.Sprint(n)
}

func poolTable(pools []apitype.Pool, w Words, s styles) table {
	return table{columns: []column{{title: "POOL"}, {title: "MODE"}, {title: "USE"}, {title: "HELD", right: true}, {title: "FREE", right: true}, {title: "BROKEN", right: true, late: true},
		{title: "RUNNING", right: true}, {title: "IDLE", right: true, late: true}, {title: "PARKED", right: true, late: true}, {title: "WAITING"}}, rows: len(pools),
		row: func(i int) []string {
			p := pools[i]
			return []string{p.Name, p.Mode, barOf(share(p.HeldGPUs, float64(p.GPUs)), 12), fmt.Sprintf("%s of %d", w.Count(p.HeldGPUs), p.GPUs), fmt.Sprint(p.FreeGPUs), fmt.Sprint(p.Unusable),
				fmt.Sprint(p.Running), fmt.Sprint(p.Idle), fmt.Sprint(p.Parked), ofMost(p.Waiting, p.Capacity)}
		},
		paint: func(i, c int, cell string) string {
			if c == 1 {
				return s.state(pools[i].Mode, cell)
			}
			return cell
		}}
}

func gpuTable(gpus []apitype.GPU, shown []int, w Words, s styles) table {
	return table{columns: []column{{title: "GPU", right: true}, {title: "HOST"}, {title: "MODEL", late: true}, {title: "POOL", late: true}, {title: "SLICES"}, {title: "HELD", right: true}, {title: "USE", right: true}, {title: "HOLDERS"}},
		rows: len(shown),
		row: func(i int) []string {
			g := gpus[shown[i]]
			bar, holders := w.Bar(g)
			if g.Health != "ok" {
				holders = strings.TrimSpace(strings.TrimSuffix(g.Health+": "+g.Why, ": ") + " " + holders)
			}
			return []string{fmt.Sprint(g.GPU), g.Host, g.Model, g.Pool, bar, fmt.Sprintf("%d%%", g.Milli/10), useOf(g), holders}
		},
		paint: func(i, c int, cell string) string {
			if g := gpus[shown[i]]; c == 7 && g.Health != "ok" {
				return s.state(g.Health, cell)
			}
			return cell
		}}
}

// useOf is how busy a GPU is: of its whole compute, as far as it is known.
func useOf(g apitype.GPU) string {
	var sum float64
	known := false
	for _, h := range g.Holders {
		if u := h.Slice.Use; u != nil && u.Compute >= 0 {
			known = true
			sum += u.Compute * float64(h.Slice.Milli) / 1000
		}
	}
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*sum)
}

func taskTable(tasks []apitype.Task, shown []int, o Options, s styles) table {
	w := o.Words
	return table{columns: []column{{title: "TASK"}, {title: "TENANT"}, {title: "NAME"}, {title: "REQUEST"}, {title: "STATE"}, {title: "AGE", right: true}, {title: "START", late: true}, {title: "POOL", late: true}, {title: "WHERE"}},
		rows: len(shown),
		row: func(i int) []string {
			t := tasks[shown[i]]
			state := t.State
			if t.Held {
				state = "held"
			}
			return []string{w.Ref(t), t.Tenant, t.Name, t.Request, state, w.Span(o.Now().Sub(t.Submitted)), w.Start(t, o.Now()), t.Pool, w.Where(t)}
		},
		paint: func(i, c int, cell string) string {
			if c == 4 {
				return s.state(tasks[shown[i]].State, cell)
			}
			return cell
		}}
}

func tenantTable(tenants []apitype.Tenant, w Words) table {
	return table{columns: []column{{title: "TENANT"}, {title: "QUOTA"}, {title: "HELD", right: true}, {title: "LIMIT", right: true}, {title: "GUARANTEE", right: true}, {title: "WEIGHT", right: true, late: true}, {title: "RUNNING"}, {title: "WAITING"}},
		rows: len(tenants),
		row: func(i int) []string {
			t := tenants[i]
			limit, bar := "none", ""
			if t.LimitGPUs > 0 {
				limit, bar = w.Count(t.LimitGPUs), barOf(share(t.HeldGPUs, t.LimitGPUs), 12)
			} else if t.Guarantee > 0 {
				bar = barOf(share(t.HeldGPUs, t.Guarantee), 12)
			}
			return []string{t.Name, bar, w.Count(t.HeldGPUs), limit, w.Count(t.Guarantee), w.Count(t.Weight), ofMost(t.Running, t.MaxRunning), ofMost(t.Waiting, t.MaxWaiting)}
		}}
}

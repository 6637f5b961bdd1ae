package apitype

import "time"

// Report is what was held of GPUs, beside what a static site would have held for the same
// tasks. docs/report.md defines every figure.
type Report struct {
	From  string      `json:"from" doc:"First day (UTC), included" example:"2026-11-01"`
	To    string      `json:"to" doc:"Last day, included" example:"2026-11-30"`
	Since time.Time   `json:"since" doc:"From when on the figures count: the first day began, or the books did"`
	Until time.Time   `json:"until" doc:"Up to when: the last day ended, or the last that the server took note of"`
	By    string      `json:"by" enum:"pool,tenant,day"`
	Rows  []ReportRow `json:"rows" nullable:"false"`
	Total ReportRow   `json:"total" doc:"Of all that the token may see"`
}

// ReportRow is the figures of a pool, a tenant or a day. Hours of GPUs are GPU hours.
type ReportRow struct {
	Pool   string  `json:"pool,omitempty"`
	Tenant string  `json:"tenant,omitempty"`
	Day    string  `json:"day,omitempty" example:"2026-11-01"`
	Hours  float64 `json:"hours" doc:"Of the clock, that the row is about"`

	StaticHours   float64 `json:"static_gpu_hours" doc:"What a static site would have held: whole GPUs for as long as a task holds its place, parked or not"`
	StaticIdle    float64 `json:"static_idle_gpu_hours" doc:"Of that, while the task was judged idle or was suspended"`
	StaticUnknown float64 `json:"static_unknown_gpu_hours" doc:"Of that, while nobody measured the task"`
	HeldHours     float64 `json:"held_gpu_hours" doc:"What was held, of slices by their compute"`
	HeldIdle      float64 `json:"held_idle_gpu_hours" doc:"Of that, while the task was judged idle or was being suspended"`
	HeldUnknown   float64 `json:"held_unknown_gpu_hours" doc:"Of that, while nobody measured the task"`

	StaticPeak int      `json:"static_gpus_peak" doc:"Most GPUs that a static site would have held at once; of several pools or tenants, each for itself"`
	StaticMean float64  `json:"static_gpus_mean" doc:"The mean over the hours"`
	InUsePeak  *int     `json:"in_use_gpus_peak,omitempty" doc:"Most GPUs with anything on them at once; of pools only, as tenants may share a GPU"`
	InUseMean  *float64 `json:"in_use_gpus_mean,omitempty" doc:"The mean over the hours"`

	Placed     int     `json:"placed" doc:"Tasks that were placed, again after each return to the queue"`
	WaitedS    float64 `json:"waited_s" doc:"Sum of the seconds that those waited in line"`
	Woken      int     `json:"woken" doc:"Parked tasks that got GPUs again"`
	WokenS     float64 `json:"woken_s" doc:"Sum of the seconds that those waited for them"`
	Succeeded  int     `json:"succeeded"`
	Failed     int     `json:"failed"`
	Cancelled  int     `json:"cancelled"`
	Expired    int     `json:"expired"`
	Moves      int     `json:"moves" doc:"Of running tasks: suspended, resized, restarted"`
	MoveFailed int     `json:"moves_failed"`
	Preempted  int     `json:"preempted"`
}

package apitype

import "time"

// Shadow is what a pool that is not dynamic would hold if it were.
type Shadow struct {
	Pool     string    `json:"pool"`
	Mode     string    `json:"mode" enum:"static,shadow"`
	Since    time.Time `json:"since" doc:"Counted from then on, for two weeks at most"`
	GPUs     float64   `json:"gpus" doc:"That are held, on average"`
	Needed   int       `json:"gpus_needed" doc:"With which nine in ten woken tasks would find a GPU at once; without any, what would have been held at most. Tasks in line are not counted"`
	Mean     float64   `json:"gpus_mean" doc:"That would be held, on average"`
	Most     float64   `json:"gpus_most" doc:"That would have been held at once at most"`
	Parks    int       `json:"parks" doc:"That would have been made"`
	Wakes    int       `json:"wakes" doc:"That would have been made"`
	Idle     float64   `json:"idle" doc:"Share of what is held that is not used"`
	IdleIf   float64   `json:"idle_if_dynamic" doc:"Share of what would be held"`
	Sentence string    `json:"sentence"`
	Tells    bool      `json:"tells_moves" doc:"Each move that would be made is an event: only in shadow mode"`
}

// RolloutSpec begins a rollout.
type RolloutSpec struct {
	Pools     []string `json:"pools" minItems:"1" maxItems:"100" doc:"That are given another mode, one after the other; one, if there are tenants"`
	Tenants   []string `json:"tenants,omitempty" maxItems:"1000" doc:"Of the one pool, that are given another mode one after the other"`
	Mode      string   `json:"mode,omitempty" enum:"dynamic,shadow" doc:"dynamic if left out"`
	Step      string   `json:"step,omitempty" maxLength:"32" example:"1h" doc:"How long the baseline and each trial take; 1h if left out"`
	WaitRatio float64  `json:"max_wait_ratio,omitempty" minimum:"0" doc:"Times the mean wait before, and 10 s more, that a trial may have; 1.2 if left out"`
	Failures  float64  `json:"max_more_failures,omitempty" minimum:"0" maximum:"1" doc:"More of the tasks that end which may fail, as a share; 0.05 if left out"`
}

// Rollout is where a rollout stands.
type Rollout struct {
	By        string        `json:"by"`
	Begun     time.Time     `json:"begun"`
	Mode      string        `json:"mode"`
	State     string        `json:"state" enum:"baseline,trial,passed,rolled_back,stopped"`
	Why       string        `json:"why,omitempty"`
	Until     *time.Time    `json:"until,omitempty" doc:"End of the baseline or of the trial"`
	Ended     *time.Time    `json:"ended,omitempty"`
	Step      string        `json:"step"`
	WaitRatio float64       `json:"max_wait_ratio"`
	Failures  float64       `json:"max_more_failures"`
	Steps     []RolloutStep `json:"steps"`
	Words     []string      `json:"words" doc:"The same in sentences: the rollout, then each step"`
}

// RolloutStep is a pool, or a tenant of a pool, in a rollout.
type RolloutStep struct {
	Pool     string   `json:"pool"`
	Tenant   string   `json:"tenant,omitempty"`
	State    string   `json:"state" enum:"waiting,on trial,passed,kept,rolled back"`
	Baseline Measured `json:"baseline"`
	Trial    Measured `json:"trial"`
}

// Measured is how tasks were served in a time.
type Measured struct {
	Waits     int     `json:"waits" doc:"Tasks that were placed, or in line at the end"`
	WaitMeanS float64 `json:"wait_mean_s" doc:"In line within that time"`
	Ended     int     `json:"ended" doc:"But for those that were cancelled"`
	Failed    int     `json:"failed"`
}

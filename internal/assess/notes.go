package assess

import (
	"fmt"
	"time"
)

// notes say what is missing, and what was not modelled.
func (x *Result) notes(pools []*pool, o Options) {
	say := func(format string, args ...any) { x.Notes = append(x.Notes, fmt.Sprintf(format, args...)) }
	h := x.Hours
	if h.NoData > 0.005*h.All {
		say("%.1f %% of the GPU hours have no sample. They are in no share, and while a GPU has none it is needed by nobody: if its pods ran on, more GPUs were needed.", 100*h.NoData/h.All)
	}
	if h.Unknown > 0.005*h.Held {
		say("For %.1f %% of the allocated hours the use was not measured: they are not idle and not busy. Whoever held those GPUs keeps them whole.", 100*h.Unknown/h.Held)
	}
	if !x.Holders {
		say("The metrics do not say which pod or job has a GPU, so each GPU counts as one holder that always has it. Let dcgm-exporter map GPUs to pods (DCGM_EXPORTER_KUBERNETES=true) or to jobs (its HPC job mapping).")
	}
	if h.Stray > 0 {
		say("%.1f GPU hours were used although no pod had the GPU: something runs past Kubernetes. Those GPUs are needed whole.", h.Stray)
	}
	shared, plain := 0, 0
	for _, d := range x.record.devices {
		if d.shared > 0 {
			shared++
		}
		if d.prof == 0 && d.plain > 0 {
			plain++
		}
	}
	if shared > 0 {
		say("%d GPUs are shared already (several pods at once for more than a step): each counts as held by one pod, whose use is that of all.", shared)
	}
	if plain > 0 && x.Metrics[0] == engineActive {
		say("%d devices have %s only, without profiling metrics: it says whether anything ran, and not how much of the GPU it took.", plain, gpuUtil)
	}
	for _, p := range pools {
		if p.geo == nil {
			say("%s: no MIG, or the tables of gpupool do not know it, so no slices there.", p.name)
		}
	}
	if x.To.Sub(x.From) < 7*24*time.Hour {
		say("That is a short time to judge by: a week or more has working days and weekends.")
	}
	say("Idle is: no sample of the use at or over %.3g %% for %s. Use is not everything: a GPU that idles may hold a model in memory for someone who must not wait.", 100*o.IdleBelow, x.IdleFor)
	say("Not modelled: work that came later because it had waited; pods that belong together over several hosts; CPU and main memory, which what is parked needs; who would not allow it. " +
		"A parked pod may wake on any GPU of its model here; gpupool wakes it on its own host. What idles when the time begins counts as if it had just begun to, so the most at any time may be the first minutes. Sizes are by what a pod was seen to use in all this time, which nobody knows when it starts.")
}

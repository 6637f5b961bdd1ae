package metrics

import "github.com/prometheus/client_golang/prometheus"

// vecs are the metrics that facts are counted in.
type vecs struct {
	submitted, rejected, ended, requeued                      *prometheus.CounterVec
	tenantSubmitted, tenantEnded, tenantPlaced                *prometheus.CounterVec
	tenantWaited                                              *prometheus.CounterVec
	wait, start, run, carve, move                             *prometheus.HistogramVec
	carveFailed, faults, moveFailed, moveDropped, freeRetries *prometheus.CounterVec
	modeChanges, fallbacks, asked                             *prometheus.CounterVec
	facts                                                     *prometheus.CounterVec
	step, journal                                             *prometheus.HistogramVec
	driverCalls                                               *prometheus.HistogramVec
	driverErrors                                              *prometheus.CounterVec
	unsaved                                                   prometheus.Counter
}

func (m *Metrics) newVecs() vecs {
	// Waits and runs last from seconds to weeks; calls from microseconds to a minute.
	long := []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 4 * 24 * 3600, 14 * 24 * 3600}
	short := []float64{0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	quick := []float64{0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
	return vecs{
		submitted: m.counter("gpupool_tasks_submitted_total", "Tasks that were accepted.", "pool", "priority", "class"),
		rejected:  m.counter("gpupool_submissions_rejected_total", "Submissions that were refused, by the code of the refusal.", "pool", "reason"),
		ended:     m.counter("gpupool_tasks_ended_total", "Tasks that ended, how (succeeded, failed, cancelled, expired) and why.", "pool", "class", "state", "reason"),
		requeued:  m.counter("gpupool_tasks_requeued_total", "Times that a task went back to its place in line, and why.", "pool", "reason"),

		tenantSubmitted: m.counter("gpupool_tenant_tasks_submitted_total", "Tasks of a tenant that were accepted.", "tenant"),
		tenantEnded:     m.counter("gpupool_tenant_tasks_ended_total", "Tasks of a tenant that ended, and how.", "tenant", "state"),
		tenantPlaced:    m.counter("gpupool_tenant_tasks_placed_total", "Times that a task of a tenant left the line for a place.", "tenant"),
		tenantWaited:    m.counter("gpupool_tenant_wait_seconds_total", "Time that those waited in line, all together.", "tenant"),

		wait:  m.histogram(long, "gpupool_task_wait_seconds", "From when a task began to wait in line to when it was given a place. Its exemplars name tasks.", "pool", "priority"),
		start: m.histogram(short, "gpupool_task_start_seconds", "From when a task was given a place to when it ran: making its slices and starting it.", "pool"),
		run:   m.histogram(long, "gpupool_task_run_seconds", "How long ended tasks ran, over all their attempts. Its exemplars name tasks.", "pool", "class"),
		carve: m.histogram(short, "gpupool_carve_seconds", "From when a part was placed to when its slices existed.", "model", "profile"),
		move:  m.histogram(short, "gpupool_move_seconds", "From decision to done, by kind of move: park (until its GPUs are free), wake (until it runs), resize (in place), restart and move (from its signal until it runs again).", "pool", "move"),

		carveFailed: m.counter("gpupool_carves_failed_total", "GPUs on which slices could not be made, or not in time.", "pool", "model"),
		faults:      m.counter("gpupool_gpu_faults_total", "Faults of programs that the hardware reported, by its code, since the server started.", "pool", "model", "code"),
		moveFailed:  m.counter("gpupool_moves_failed_total", "Moves that went wrong and were undone.", "pool", "move"),
		moveDropped: m.counter("gpupool_moves_dropped_total", "Announced moves that were of no use any more when they were due.", "pool", "move"),
		freeRetries: m.counter("gpupool_free_retries_total", "Times that slices could not be freed and are tried again.", "pool"),

		modeChanges: m.counter("gpupool_pool_mode_changes_total", "Changes of a pool's mode beside its settings, by the new mode.", "pool", "mode"),
		fallbacks:   m.counter("gpupool_pool_fallbacks_total", "Times that a pool fell back to static by itself, since the server started.", "pool"),
		asked:       m.counter("gpupool_pool_scaleouts_total", "Times that a pool asked for more GPUs from outside.", "pool"),

		facts:   m.counter("gpupool_facts_total", "Facts that were made durable, by kind.", "kind"),
		step:    m.histogram(quick, "gpupool_engine_step_seconds", "Deciding what follows from one event: the mean over those of one commit."),
		journal: m.histogram(quick, "gpupool_journal_commit_seconds", "Making the facts of one commit durable."),

		unsaved: m.counter("gpupool_journal_snapshot_failures_total", "Snapshots that could not be stored: the journal keeps all facts since the last one, and a start takes longer.").WithLabelValues(),

		driverCalls:  m.histogram(short, "gpupool_driver_call_seconds", "Calls of drivers that did not fail.", "driver", "op"),
		driverErrors: m.counter("gpupool_driver_errors_total", "Calls of drivers that failed, by the code of the error.", "driver", "op", "code"),
	}
}

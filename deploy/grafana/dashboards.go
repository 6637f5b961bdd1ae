package main

// dashboards lists what there is. Every query is proven by TestSeeing in cmd/gpupool to
// return data from a real server.
func dashboards() []board {
	return []board{pools(), tenants(), gpus(), savings()}
}

const byPool = `pool=~"$pool"`

func pools() board {
	pool := variable{"pool", "label_values(gpupool_gpus, pool)"}
	return board{"pools.json", "gpupool-pools", "gpupool: pools", "What the pools have, how busy it is, who waits, and what the scheduler does about it.", []variable{pool}, []row{
		{"Now", []panel{
			{title: "Utilisation", says: "Measured use of all usable GPUs.", unit: "percentunit", big: true, queries: []query{{`avg(gpupool:pool_utilisation:ratio{` + byPool + `})`, ""}}},
			{title: "Given out", says: "GPUs that are held, of those that can be used.", unit: "percentunit", big: true, queries: []query{{`avg(gpupool:pool_held:ratio{` + byPool + `})`, ""}}},
			{title: "Waiting", says: "Tasks in line.", unit: "short", big: true, queries: []query{{`sum(gpupool_queue_tasks{` + byPool + `})`, ""}}},
			{title: "GPUs that cannot be used", says: "Suspect, cordoned, drained, broken, or unreachable.", unit: "short", big: true, queries: []query{{`sum(gpupool_gpus{` + byPool + `, state=~"suspect|cordoned|draining|drained|broken|unreachable"})`, ""}}},
		}},
		{"GPUs", []panel{
			{title: "GPUs by state", unit: "short", stack: true, queries: []query{{`sum by (state) (gpupool_gpus{` + byPool + `})`, "{{state}}"}}},
			{title: "Utilisation", says: "Measured use of compute, over all usable GPUs.", unit: "percentunit", queries: []query{{`gpupool:pool_utilisation:ratio{` + byPool + `}`, "{{pool}}"}}},
			{title: "Slices given out", unit: "short", stack: true, queries: []query{{`sum by (profile) (gpupool_slices_held{` + byPool + `})`, "{{profile}}"}}},
			{title: "Slices that would still fit", says: "Of each profile, if only that one were asked for.", unit: "short", queries: []query{{`sum by (profile) (gpupool_slices_placeable{` + byPool + `})`, "{{profile}}"}}},
			{title: "Fragmentation", says: "Of what is free, how much is beside something that is held, and cannot serve a whole GPU.", unit: "percentunit", queries: []query{{`gpupool_fragmentation_ratio{` + byPool + `}`, "{{pool}} {{model}}"}}},
			{title: "Memory", unit: "bytes", queries: []query{{`sum(gpupool_pool_memory_used_bytes{` + byPool + `})`, "used"}, {`sum(gpupool_pool_memory_bytes{` + byPool + `})`, "all"}}},
		}},
		{"Waiting", []panel{
			{title: "In line", unit: "short", stack: true, queries: []query{{`sum by (priority) (gpupool_queue_tasks{` + byPool + `})`, "{{priority}}"}, {`sum(gpupool_queue_held_back_tasks{` + byPool + `})`, "held back"}}},
			{title: "Oldest", says: "How long the one has waited that has waited the longest.", unit: "s", queries: []query{{`max by (pool, priority) (gpupool_queue_oldest_seconds{` + byPool + `})`, "{{pool}} {{priority}}"}}},
			{title: "Waits, 99th percentile", unit: "s", queries: []query{{`histogram_quantile(0.99, sum by (priority, le) (rate(gpupool_task_wait_seconds_bucket{` + byPool + `}[$__rate_interval])))`, "{{priority}}"}}},
			{title: "Tasks", says: "Accepted, ended and sent back to the line, in a minute.", unit: "short", queries: []query{
				{`60 * sum(rate(gpupool_tasks_submitted_total{` + byPool + `}[$__rate_interval]))`, "submitted"},
				{`60 * sum by (state) (rate(gpupool_tasks_ended_total{` + byPool + `}[$__rate_interval]))`, "{{state}}"},
				{`60 * sum by (reason) (rate(gpupool_tasks_requeued_total{` + byPool + `}[$__rate_interval]))`, "back: {{reason}}"},
			}},
			{title: "Refused", says: "Submissions, in a minute, by reason.", unit: "short", queries: []query{{`60 * sum by (reason) (rate(gpupool_submissions_rejected_total{pool=~"$pool|other"}[$__rate_interval]))`, "{{reason}}"}}},
			{title: "Run times, median", unit: "s", queries: []query{{`histogram_quantile(0.5, sum by (class, le) (rate(gpupool_task_run_seconds_bucket{` + byPool + `}[$__rate_interval])))`, "{{class}}"}}},
		}},
		{"Moves", []panel{
			{title: "Moves, 95th percentile", says: "From decision to done.", unit: "s", queries: []query{{`histogram_quantile(0.95, sum by (move, le) (rate(gpupool_move_seconds_bucket{` + byPool + `}[$__rate_interval])))`, "{{move}}"}}},
			{title: "Moves", says: "In a minute; below, those that went wrong.", unit: "short", queries: []query{
				{`60 * sum by (move) (rate(gpupool_move_seconds_count{` + byPool + `}[$__rate_interval]))`, "{{move}}"},
				{`60 * sum by (move) (rate(gpupool_moves_failed_total{` + byPool + `}[$__rate_interval]))`, "{{move}} failed"},
			}},
			{title: "Idle and parked", unit: "short", queries: []query{{`sum(gpupool_pool_idle_tasks{` + byPool + `})`, "idle"}, {`sum(gpupool_pool_parked_tasks{` + byPool + `})`, "parked"}}},
			{title: "Mode", says: "1 for the mode that a pool is in; and whether it is more careful than its settings say.", unit: "short", queries: []query{{`gpupool_pool_mode{` + byPool + `} == 1`, "{{pool}}: {{mode}}"}, {`gpupool_pool_fallen_back{` + byPool + `}`, "{{pool}} fell back"}}},
			{title: "Lent", says: "GPUs, by lender and borrower.", unit: "short", stack: true, queries: []query{{`gpupool_lent_gpus`, "{{lender}} to {{borrower}}"}}},
		}},
		{"gpupool itself", []panel{
			{title: "Carving, 95th percentile", unit: "s", queries: []query{{`histogram_quantile(0.95, sum by (profile, le) (rate(gpupool_carve_seconds_bucket[$__rate_interval])))`, "{{profile}}"}}},
			{title: "Driver errors", says: "In a minute.", unit: "short", queries: []query{{`60 * sum by (driver, op, code) (rate(gpupool_driver_errors_total[$__rate_interval]))`, "{{driver}} {{op}}: {{code}}"}}},
			{title: "Commit and step, 99th percentile", unit: "s", queries: []query{
				{`histogram_quantile(0.99, sum by (le) (rate(gpupool_journal_commit_seconds_bucket[$__rate_interval])))`, "commit"},
				{`histogram_quantile(0.99, sum by (le) (rate(gpupool_engine_step_seconds_bucket[$__rate_interval])))`, "step"},
			}},
			{title: "Its own CPU and memory", unit: "short", queries: []query{{`rate(process_cpu_seconds_total{job="gpupool"}[$__rate_interval])`, "cores"}, {`process_resident_memory_bytes{job="gpupool"} / 2^30`, "GiB"}}},
		}},
	}}
}

func tenants() board {
	const t = `tenant=~"$tenant"`
	return board{"tenants.json", "gpupool-tenants", "gpupool: tenants", "What each tenant has, may have, and waits for.", []variable{{"tenant", "label_values(gpupool_tenant_held_gpus, tenant)"}}, []row{
		{"Quota", []panel{
			{title: "GPUs held", unit: "short", stack: true, queries: []query{{`gpupool_tenant_held_gpus{` + t + `}`, "{{tenant}}"}}},
			{title: "Of the guarantee", says: "Held, over what is guaranteed; over 1 is borrowed.", unit: "percentunit", queries: []query{{`gpupool_tenant_held_gpus{` + t + `} / (gpupool_tenant_guaranteed_gpus{` + t + `} > 0)`, "{{tenant}}"}}},
			{title: "Of the limit", unit: "percentunit", queries: []query{{`gpupool_tenant_held_gpus{` + t + `} / gpupool_tenant_limit_gpus{` + t + `}`, "{{tenant}}"}}},
			{title: "GPU hours in this time", unit: "short", queries: []query{{`increase(gpupool_tenant_gpu_seconds_total{` + t + `}[$__range]) / 3600`, "{{tenant}}"}}},
		}},
		{"Work", []panel{
			{title: "Waiting", unit: "short", stack: true, queries: []query{{`gpupool_tenant_waiting_tasks{` + t + `}`, "{{tenant}}"}}},
			{title: "Mean wait", unit: "s", queries: []query{{`sum by (tenant) (rate(gpupool_tenant_wait_seconds_total{` + t + `}[$__rate_interval])) / (sum by (tenant) (rate(gpupool_tenant_tasks_placed_total{` + t + `}[$__rate_interval])) > 0)`, "{{tenant}}"}}},
			{title: "Submitted", says: "In a minute.", unit: "short", queries: []query{{`60 * sum by (tenant) (rate(gpupool_tenant_tasks_submitted_total{` + t + `}[$__rate_interval]))`, "{{tenant}}"}}},
			{title: "Ended", says: "In a minute, and how.", unit: "short", queries: []query{{`60 * sum by (tenant, state) (rate(gpupool_tenant_tasks_ended_total{` + t + `}[$__rate_interval]))`, "{{tenant}}: {{state}}"}}},
		}},
	}}
}

func gpus() board {
	const g = `pool=~"$pool", host=~"$host", gpu=~"$gpu"`
	return board{"gpus.json", "gpupool-gpus", "gpupool: GPUs", "Each GPU by itself.", []variable{
		{"pool", "label_values(gpupool_gpu_info, pool)"}, {"host", `label_values(gpupool_gpu_info{pool=~"$pool"}, host)`}, {"gpu", `label_values(gpupool_gpu_info{pool=~"$pool", host=~"$host"}, gpu)`}}, []row{
		{"Use", []panel{
			{title: "Utilisation", says: "Measured use of compute; missing where nobody measures it.", unit: "percentunit", queries: []query{{`gpupool_gpu_utilisation_ratio{` + g + `}`, "{{host}} {{gpu}}"}}},
			{title: "Given out", unit: "percentunit", queries: []query{{`gpupool_gpu_held_ratio{` + g + `}`, "{{host}} {{gpu}}"}}},
			{title: "Memory used", unit: "bytes", queries: []query{{`gpupool_gpu_memory_used_bytes{` + g + `}`, "{{host}} {{gpu}}"}}},
			{title: "Given out, and not used", says: "What is held, less what is used of it.", unit: "percentunit", queries: []query{{`gpupool_gpu_held_ratio{` + g + `} - gpupool_gpu_utilisation_ratio{` + g + `}`, "{{host}} {{gpu}}"}}},
		}},
		{"Slices", []panel{
			{title: "Utilisation of slices", says: "Each of its own compute.", unit: "percentunit", queries: []query{{`gpupool_slice_utilisation_ratio{pool=~"$pool"}`, "{{pool}} {{model}} {{profile}}"}}},
			{title: "Memory used by slices", unit: "bytes", queries: []query{{`gpupool_slice_memory_used_bytes{pool=~"$pool"}`, "{{pool}} {{model}} {{profile}}"}}},
		}},
		{"Health", []panel{
			{title: "Usable", says: "0 while it is suspect, cordoned, drained, broken or unreachable.", unit: "short", queries: []query{{`gpupool_gpu_usable{` + g + `}`, "{{host}} {{gpu}}"}}},
			{title: "Failed carves", says: "In an hour.", unit: "short", queries: []query{{`sum by (pool, model) (increase(gpupool_carves_failed_total{pool=~"$pool"}[1h]))`, "{{pool}} {{model}}"}}},
			{title: "Set aside", says: "By operators and by drivers, and what they want.", unit: "short", stack: true, queries: []query{{`sum by (by, verdict) (gpupool_gpu_verdicts{pool=~"$pool"})`, "{{by}}: {{verdict}}"}}},
			{title: "Faults of programs", says: "In an hour, by the hardware's code.", unit: "short", queries: []query{{`sum by (pool, code) (increase(gpupool_gpu_faults_total{pool=~"$pool"}[1h]))`, "{{pool}} {{code}}"}}},
			{title: "Slices that should be free", unit: "short", queries: []query{{`gpupool_parts_freeing{pool=~"$pool"}`, "{{pool}}"}}},
			{title: "Most free GPUs in one host", unit: "short", queries: []query{{`gpupool_free_gpus_largest_host{pool=~"$pool"}`, "{{pool}} {{model}}"}}},
		}},
	}}
}

func savings() board {
	return board{"savings.json", "gpupool-savings", "gpupool: savings", "What the same tasks would hold if each had whole GPUs for itself until its end, and what they hold. It compares GPUs, not what they cost.",
		[]variable{{"pool", "label_values(gpupool_gpus, pool)"}}, []row{
			{"Now", []panel{
				{title: "Saved in this time", says: "GPU hours that were not needed, over those that whole GPUs would have been.", unit: "percentunit", big: true, queries: []query{
					{`1 - sum(increase(gpupool_held_gpu_seconds_total{` + byPool + `}[$__range])) / sum(increase(gpupool_static_gpu_seconds_total{` + byPool + `}[$__range]))`, ""}}},
				{title: "GPU hours held", unit: "short", big: true, queries: []query{{`sum(increase(gpupool_held_gpu_seconds_total{` + byPool + `}[$__range])) / 3600`, ""}}},
				{title: "GPU hours, whole GPUs", unit: "short", big: true, queries: []query{{`sum(increase(gpupool_static_gpu_seconds_total{` + byPool + `}[$__range])) / 3600`, ""}}},
				{title: "Parked", says: "Tasks that keep their place and hold no GPU.", unit: "short", big: true, queries: []query{{`sum(gpupool_pool_parked_tasks{` + byPool + `})`, ""}}},
			}},
			{"Over time", []panel{
				{title: "GPUs", unit: "short", queries: []query{
					{`sum(gpupool_static_gpus{` + byPool + `})`, "whole GPUs for each task"}, {`sum(gpupool_held_gpus{` + byPool + `})`, "held"},
					{`sum(gpupool:pool_utilisation:ratio{` + byPool + `} * on (job, pool) sum by (job, pool) (gpupool:usable_gpus:sum))`, "used"}, {`sum(gpupool:usable_gpus:sum{` + byPool + `})`, "there are"}}},
				{title: "Saved", says: "Over the hour before.", unit: "percentunit", queries: []query{{`gpupool:saved_gpus:ratio_1h{` + byPool + `}`, "{{pool}}"}}},
				{title: "Lent GPU hours", says: "In an hour, by lender and borrower.", unit: "short", queries: []query{{`increase(gpupool_lent_gpu_seconds_total[1h]) / 3600`, "{{lender}} to {{borrower}}"}}},
				{title: "How soon it came back", says: "Mean time from asked back to free.", unit: "s", queries: []query{{`gpupool_loan_return_seconds_total / (gpupool_loans_called_total > 0)`, "{{lender}} from {{borrower}}"}}},
			}},
		}}
}

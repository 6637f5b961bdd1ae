package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// stateDescs are the metrics that are made from the view and the tracker for each scrape.
type stateDescs struct {
	gpus, wanted, heldGPUs, slicesHeld, placeable, fragmentation, largest *prometheus.Desc
	util, memUsed, mem, sliceUtil, sliceMem                               *prometheus.Desc
	queue, back, oldest, ttl                                              *prometheus.Desc
	mode, fallen, idle, parked                                            *prometheus.Desc
	lent, lentSeconds, loans, called, returned, longest                   *prometheus.Desc
	tenantHeld, tenantLimit, tenantGuarantee, tenantWaiting, tenantUsed   *prometheus.Desc
	static, staticSeconds, heldSeconds, freeing, freeingOldest, viewedAt  *prometheus.Desc
}

func (m *Metrics) newState() stateDescs {
	const gauge, counter = "gauge", "counter"
	m.defineGPUs()
	return stateDescs{
		gpus:          m.desc(gauge, "gpupool_gpus", "GPUs: free, part (some of it is given out), full, suspect (a carve failed lately), cordoned, draining, drained, broken, or unreachable with their host.", "pool", "model", "state"),
		wanted:        m.desc(gauge, "gpupool_gpu_verdicts", "GPUs that operators or their driver want cordoned, drained, or (the driver only) given up as broken. One may be wanted by both.", "pool", "model", "by", "verdict"),
		heldGPUs:      m.desc(gauge, "gpupool_held_gpus", "GPUs that are given out; parts of GPUs count as fractions.", "pool", "model"),
		slicesHeld:    m.desc(gauge, "gpupool_slices_held", "Slices that are given out: by MIG profile, whole, or share.", "pool", "model", "profile"),
		placeable:     m.desc(gauge, "gpupool_slices_placeable", "How many more slices of a profile would fit, of that one alone.", "pool", "model", "profile"),
		fragmentation: m.desc(gauge, "gpupool_fragmentation_ratio", "Of what is not given out, how much is on GPUs of which some is: it cannot serve a whole GPU. 0 where nothing is left.", "pool", "model"),
		largest:       m.desc(gauge, "gpupool_free_gpus_largest_host", "The most free whole GPUs in one host.", "pool", "model"),

		util:      m.desc(gauge, "gpupool_pool_utilisation_ratio", "Mean measured use of the compute of all usable GPUs; what is not given out counts as 0, what nobody measured is left out.", "pool", "model"),
		memUsed:   m.desc(gauge, "gpupool_pool_memory_used_bytes", "Measured use of GPU memory.", "pool", "model"),
		mem:       m.desc(gauge, "gpupool_pool_memory_bytes", "Memory of all usable GPUs.", "pool", "model"),
		sliceUtil: m.desc(gauge, "gpupool_slice_utilisation_ratio", "Mean measured use of the compute of slices, each of its own.", "pool", "model", "profile"),
		sliceMem:  m.desc(gauge, "gpupool_slice_memory_used_bytes", "Measured use of memory by slices.", "pool", "model", "profile"),

		queue:  m.desc(gauge, "gpupool_queue_tasks", "Tasks that wait in line.", "pool", "priority"),
		back:   m.desc(gauge, "gpupool_queue_held_back_tasks", "Tasks that someone holds back, or that come after others.", "pool"),
		oldest: m.desc(gauge, "gpupool_queue_oldest_seconds", "How long the one has waited in line that has waited the longest; 0 when nobody waits.", "pool", "priority"),
		ttl:    m.desc(gauge, "gpupool_queue_oldest_ttl_ratio", "Of those in line, the most of its TTL that one has waited for; at 1 it expires.", "pool", "priority"),

		mode:   m.desc(gauge, "gpupool_pool_mode", "1 for the mode that a pool is in, 0 for the others.", "pool", "mode"),
		fallen: m.desc(gauge, "gpupool_pool_fallen_back", "1 while a pool is in a more careful mode than its settings say: it fell back by itself, or someone set it.", "pool"),
		idle:   m.desc(gauge, "gpupool_pool_idle_tasks", "Running tasks that are judged idle.", "pool"),
		parked: m.desc(gauge, "gpupool_pool_parked_tasks", "Tasks that are suspended.", "pool"),

		lent:        m.desc(gauge, "gpupool_lent_gpus", "GPUs of the lender that tasks of the borrower hold.", "lender", "borrower"),
		lentSeconds: m.desc(counter, "gpupool_lent_gpu_seconds_total", "GPU seconds that were lent. It counts from the first start of the journal.", "lender", "borrower"),
		loans:       m.desc(counter, "gpupool_loans_total", "Parts that were lent. It counts from the first start of the journal.", "lender", "borrower"),
		called:      m.desc(counter, "gpupool_loans_called_total", "Of those, asked back.", "lender", "borrower"),
		returned:    m.desc(counter, "gpupool_loan_return_seconds_total", "From asked back to free, all together.", "lender", "borrower"),
		longest:     m.desc(gauge, "gpupool_loan_return_longest_seconds", "The longest of those.", "lender", "borrower"),

		tenantHeld:      m.desc(gauge, "gpupool_tenant_held_gpus", "GPUs that a tenant holds; parts of GPUs count as fractions.", "tenant"),
		tenantLimit:     m.desc(gauge, "gpupool_tenant_limit_gpus", "GPUs that a tenant may hold; missing where there is no limit.", "tenant"),
		tenantGuarantee: m.desc(gauge, "gpupool_tenant_guaranteed_gpus", "GPUs that a tenant gets whenever it asks.", "tenant"),
		tenantWaiting:   m.desc(gauge, "gpupool_tenant_waiting_tasks", "Tasks of a tenant that wait in line.", "tenant"),
		tenantUsed:      m.desc(counter, "gpupool_tenant_gpu_seconds_total", "GPU seconds that a tenant held, since the server started.", "tenant"),

		static:        m.desc(gauge, "gpupool_static_gpus", "GPUs that the tasks which have started would hold if each had whole GPUs for itself until its end (docs/report.md has the books of all days).", "pool"),
		staticSeconds: m.desc(counter, "gpupool_static_gpu_seconds_total", "GPU seconds of that, since the server started.", "pool"),
		heldSeconds:   m.desc(counter, "gpupool_held_gpu_seconds_total", "GPU seconds that are really given out, since the server started.", "pool"),
		freeing:       m.desc(gauge, "gpupool_parts_freeing", "Parts of leases that should be free by now and are not.", "pool"),
		freeingOldest: m.desc(gauge, "gpupool_parts_freeing_oldest_seconds", "For how long the one is overdue that is the longest.", "pool"),
		viewedAt:      m.desc(gauge, "gpupool_view_timestamp_seconds", "When the state that this is made from was looked at."),
	}
}

// Describe implements prometheus.Collector. It describes nothing, as what there is
// depends on the view; names and labels are those of Defs.
func (m *Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := sink{ch}
	now := work.TimeOf(time.Now())
	s.gauge(m.state.viewedAt, float64(m.view.At)/1e9)
	m.collectHardware(s)
	m.collectPools(s)
	waiting := m.collectQueue(s, now)
	m.collectTenants(s, waiting, now)
	m.collectSums(s, now)
}

// sink makes metrics of what is found.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, x float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
}

func (s sink) counter(d *prometheus.Desc, x float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, x, labels...)
}

func (m *Metrics) collectPools(s sink) {
	careful := map[work.PoolMode]int{}
	for i, mode := range work.Modes() {
		careful[mode] = i
	}
	for _, p := range m.view.Pools {
		for _, mode := range work.Modes() {
			s.gauge(m.state.mode, truth(p.InForce == mode), p.Name, string(mode))
		}
		s.gauge(m.state.fallen, truth(careful[p.InForce] < careful[p.Mode]), p.Name)
		s.gauge(m.state.idle, float64(p.Idle), p.Name)
		s.gauge(m.state.parked, float64(p.Parked), p.Name)
	}
	for _, d := range m.view.Debts {
		s.gauge(m.state.lent, float64(d.Milli)/1000, d.Lender, d.Borrower)
		s.counter(m.state.lentSeconds, float64(d.GPUMs)/1000, d.Lender, d.Borrower)
		s.counter(m.state.loans, float64(d.Loans), d.Lender, d.Borrower)
		s.counter(m.state.called, float64(d.Called), d.Lender, d.Borrower)
		s.counter(m.state.returned, d.Took.Seconds(), d.Lender, d.Borrower)
		s.gauge(m.state.longest, d.Longest.Seconds(), d.Lender, d.Borrower)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// collectQueue shows who waits, and returns it by tenant.
func (m *Metrics) collectQueue(s sink, now work.Time) map[string]int {
	for _, p := range m.view.Pools {
		m.tracker.pool(p.Name) // an empty line is shown too
	}
	tenants := m.tracker.waiting(now)
	for name, p := range m.tracker.pools { // order: the registry sorts
		back := 0
		for i, w := range p.waiting {
			prio, age := work.Priority(i).String(), 0.0
			if w.tasks > 0 {
				age = max(0, now.Sub(w.oldest).Seconds())
			}
			back += w.back
			s.gauge(m.state.queue, float64(w.tasks), name, prio)
			s.gauge(m.state.oldest, age, name, prio)
			s.gauge(m.state.ttl, w.used, name, prio)
		}
		s.gauge(m.state.back, float64(back), name)
	}
	return tenants
}

// collectTenants shows what tenants have; those beyond the bound are one together.
func (m *Metrics) collectTenants(s sink, waiting map[string]int, now work.Time) {
	type sums struct{ held, limit, guarantee float64 }
	all := map[string]*sums{}
	for _, t := range m.view.Tenants {
		name := m.tenants.name(t.Name)
		x := all[name]
		if x == nil {
			x = &sums{}
			all[name] = x
		}
		x.held += float64(t.HeldMilli) / 1000
		x.limit += t.LimitGPUs
		x.guarantee += t.GuaranteeGPUs
	}
	m.gone.upTo(m.view, now, &m.tenants)
	used := m.gone.byTenant
	for name, x := range all { // order: the registry sorts
		s.gauge(m.state.tenantHeld, x.held, name)
		s.gauge(m.state.tenantGuarantee, x.guarantee, name)
		s.gauge(m.state.tenantWaiting, float64(waiting[name]), name)
		s.counter(m.state.tenantUsed, used[name], name)
		if x.limit > 0 && name != other {
			s.gauge(m.state.tenantLimit, x.limit, name)
		}
	}
}

// collectSums shows what is saved against whole GPUs for everyone, and what is overdue.
func (m *Metrics) collectSums(s sink, now work.Time) {
	type due struct {
		n      int
		oldest time.Duration
	}
	late := map[string]*due{}
	for name := range m.tracker.pools { // order: each by itself
		late[name] = &due{}
	}
	for _, p := range m.tracker.parts { // order: sums and a maximum
		if p.leaving == 0 || p.leaving > now {
			continue
		}
		d := late[p.pool]
		if d == nil {
			d = &due{}
			late[p.pool] = d
		}
		d.n++
		d.oldest = max(d.oldest, now.Sub(p.leaving))
	}
	for name, d := range late { // order: the registry sorts
		s.gauge(m.state.freeing, float64(d.n), name)
		s.gauge(m.state.freeingOldest, d.oldest.Seconds(), name)
	}
	for name, p := range m.tracker.pools { // order: the registry sorts
		p.upTo(now)
		s.gauge(m.state.static, float64(p.static), name)
		s.counter(m.state.staticSeconds, p.seconds, name)
	}
	for name, x := range m.gone.byPool { // order: the registry sorts
		s.counter(m.state.heldSeconds, x, name)
	}
}

// integrals add up over time what views show, so that what came and went between two
// scrapes counts too.
type integrals struct {
	byPool, byTenant map[string]float64 // GPU seconds held; tenants as they are shown
	at               work.Time          // up to when; 0 = nothing was added yet
}

// upTo adds what a view showed until now, or until the next one came.
func (g *integrals) upTo(v *host.View, now work.Time, names *bounded) {
	if g.at == 0 { // the state before a restart says nothing of the time until then
		g.byPool, g.byTenant, g.at = map[string]float64{}, map[string]float64{}, now
	}
	d := max(0, now.Sub(g.at).Seconds())
	for i := range v.GPUs {
		x := &v.GPUs[i]
		g.byPool[v.Hosts[x.Host].Pool] += d * float64(x.Milli) / 1000
	}
	for _, t := range v.Tenants {
		g.byTenant[names.name(t.Name)] += d * float64(t.HeldMilli) / 1000
	}
	g.at = max(g.at, now)
}

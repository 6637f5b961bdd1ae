package metrics

import "github.com/prometheus/client_golang/prometheus"

// role is what is shown of a server among several.
type role struct {
	leader, records, seconds prometheus.Gauge
}

func (m *Metrics) newRole() role {
	r := role{
		leader:  m.gauge("gpupool_leader", "1 while this server leads and decides, 0 while it follows another. A server alone leads.").WithLabelValues(),
		records: m.gauge("gpupool_journal_behind_records", "Facts in the shared journal that this server has not heard yet; 0 for the one that leads.").WithLabelValues(),
		seconds: m.gauge("gpupool_journal_behind_seconds", "How long ago this server was last known to have heard all; 0 for the one that leads.").WithLabelValues(),
	}
	r.leader.Set(1)
	return r
}

// Role tells whether this server leads, and if not, how far it is behind in facts and seconds.
func (m *Metrics) Role(leads bool, records uint64, seconds float64) {
	m.role.leader.Set(map[bool]float64{true: 1}[leads])
	m.role.records.Set(float64(records))
	m.role.seconds.Set(seconds)
}

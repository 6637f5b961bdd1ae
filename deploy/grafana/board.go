package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board is a dashboard before it is built.
type board struct {
	file, uid, title, says string
	vars                   []variable
	rows                   []row
}

// variable is a choice of label values, all of them at first.
type variable struct{ name, query string }

type row struct {
	title  string
	panels []panel
}

// panel is a curve, or one number where it is wanted big.
type panel struct {
	title, says string
	unit        string // Grafana's name: percentunit, s, bytes, short, ops
	big         bool
	stack       bool
	queries     []query
}

type query struct{ expr, legend string }

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func (d board) build() *dashboard.DashboardBuilder {
	b := dashboard.NewDashboardBuilder(d.title).Uid(d.uid).Description(d.says).Tags([]string{"gpupool"}).
		Refresh("30s").Time("now-6h", "now").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("gpupool").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"gpupool"}).AsDropdown(true).IncludeVars(true).KeepTime(true))
	for _, v := range d.vars {
		b = b.WithVariable(dashboard.NewQueryVariableBuilder(v.name).Label(v.name).Datasource(source()).
			Query(dashboard.StringOrMap{String: &v.query}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortNaturalAsc).Multi(true).IncludeAll(true).AllValue(".*").
			Current(dashboard.VariableOption{Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{String: cog.ToPtr("All")}, Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")}}))
	}
	id := uint32(0) // numbers must differ, or Grafana shows one panel for another
	for _, r := range d.rows {
		id++
		b = b.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			id++
			b = b.WithPanel(p.build(id))
		}
	}
	return b
}

func (p panel) build(id uint32) cog.Builder[dashboard.Panel] {
	if p.big {
		b := stat.NewPanelBuilder().Id(id).Title(p.title).Description(p.says).Unit(p.unit).Datasource(source()).Height(4).Span(6)
		for i, q := range p.queries {
			b = b.WithTarget(q.build(i))
		}
		return b
	}
	b := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.says).Unit(p.unit).Datasource(source()).Height(8).Span(12).Min(0).FillOpacity(10)
	if p.stack {
		b = b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	for i, q := range p.queries {
		b = b.WithTarget(q.build(i))
	}
	return b
}

// build names the queries of a panel A, B, C.
func (q query) build(n int) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().RefId(string(rune('A' + n))).Datasource(source()).Expr(q.expr).LegendFormat(q.legend)
}

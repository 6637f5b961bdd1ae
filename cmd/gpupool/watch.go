package main

import (
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/api"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/metrics"
)

// metricsTokenFile is in the data folder: what a scraper on another machine shows.
const metricsTokenFile = "metrics-token"

// watching makes what counts, and the token for those who read it.
func watching(o cli.ServeOptions) (*metrics.Metrics, string, error) {
	c := o.Config
	token, err := keptToken(filepath.Join(c.Server.Data, metricsTokenFile), "metrics", api.NewMetricsToken)
	if err != nil {
		return nil, "", err
	}
	return metrics.New(metrics.Options{Version: o.Version, Tenants: c.Metrics.Tenants, GPUs: c.Metrics.GPUs, Bounds: map[string]float64{
		"utilisation_below":   float64(c.Alerts.Utilisation),
		"waiting_above":       float64(c.Alerts.Waiting),
		"journal_above":       time.Duration(c.Alerts.Journal).Seconds(),
		"cpu_below":           float64(c.Agent.CPU),
		"memory_below":        float64(c.Agent.Memory) * (1 << 20),
		"overdue_above":       time.Duration(c.Alerts.Overdue).Seconds(),
		"waited_of_ttl_above": float64(c.Alerts.Waited),
		"carves_failed_above": float64(c.Alerts.Carves),
	}}), token, nil
}

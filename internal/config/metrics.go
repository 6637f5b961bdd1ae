package config

import (
	"fmt"
	"slices"
)

// Metrics is what Prometheus reads.
type Metrics struct {
	Open    string `yaml:"open" default:"loopback" enum:"loopback,always,never" doc:"Who may read them without a token: programs on this machine, everyone, or nobody. The token for others is in the file metrics-token of the data folder."`
	Tenants int    `yaml:"tenants_at_most" default:"500" doc:"Tenants that are shown by name; all beyond are one, named other."`
	GPUs    int    `yaml:"gpus_at_most" default:"20000" doc:"GPUs that are shown one by one; all beyond are one of each pool and model, named other. At least 1."`
}

func (m Metrics) check() error {
	if !slices.Contains([]string{"loopback", "always", "never"}, m.Open) {
		return fmt.Errorf("metrics.open: expected loopback, always or never, got %q", m.Open)
	}
	return nil
}

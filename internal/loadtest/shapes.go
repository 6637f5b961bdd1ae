package loadtest

import (
	"fmt"
	"strconv"

	"github.com/gpupool/gpupool/internal/api/apitype"
)

// Shape is what a published result used: so many GPUs for so long.
type Shape struct {
	Name    string
	Class   string  // training or inference
	GPUs    int     // in all
	Minutes float64 // to train; 0 for one that serves
	Source  string
}

// The sources of the shapes. Results of MLPerf are at mlcommons.org/benchmarks; these pages
// are NVIDIA's summaries of its own submissions.
const (
	training40 = "MLPerf Training v4.0, blogs.nvidia.com/blog/mlperf-training-benchmarks"
	training50 = "MLPerf Training v5.0, developer.nvidia.com/blog/nvidia-blackwell-delivers-up-to-2-6x-higher-performance-in-mlperf-training-v5-0"
	training51 = "MLPerf Training v5.1, as reported by particle.news and epium.com of NVIDIA's submission"
	datacenter = "MLPerf Inference, datacenter: the usual system under test is one server of 8 GPUs"
)

// Shapes are task shapes from published results. Those of inference have no time: their
// servers run for as long as they are asked to.
var Shapes = []Shape{
	{"llama2-70b-lora", "training", 8, 28, training40},
	{"gpt3-175b", "training", 3584, 10.9, training40},
	{"gpt3-175b-large", "training", 11616, 3.4, training40},
	{"llama31-405b", "training", 2496, 20.8, training50},
	{"llama31-405b-ultra", "training", 5120, 10, training51},
	{"llama31-8b", "training", 512, 5.2, training51},
	{"flux1", "training", 1152, 12.5, training51},
	{"llama2-70b-serving", "inference", 8, 0, datacenter},
	{"resnet50-serving", "inference", 1, 0, datacenter},
}

// Site is the pool that shapes are made to fit.
type Site struct {
	GPUs    int `json:"gpus"`
	PerHost int `json:"gpus_per_host"` // of the largest host
	Hosts   int `json:"hosts"`         // with so many
}

// spec asks for a shape, or for as much of it as the site has: gangs of whole hosts.
func (s Shape) spec(site Site) (spec apitype.TaskSpec, scaled bool) {
	spec = apitype.TaskSpec{Name: s.Name, Class: s.Class}
	per := min(s.GPUs, site.PerHost)
	members := (s.GPUs + max(per, 1) - 1) / max(per, 1)
	scaled = members > max(site.Hosts, 1) || per == 0
	members = min(members, max(site.Hosts, 1))
	spec.GPUs = strconv.Itoa(per)
	if members > 1 {
		spec.Members = members
	}
	if s.Minutes > 0 {
		spec.Estimate = fmt.Sprintf("%ds", int(s.Minutes*60))
	}
	return spec, scaled
}

package metrics

import (
	"cmp"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// bounded gives names to the first so many that ask, and one name to all the rest. A
// name once given stays, so that no counter changes its series.
type bounded struct {
	most  int
	known map[string]bool
}

func (b *bounded) name(s string) string {
	switch {
	case b.known[s]:
		return s
	case len(b.known) >= b.most:
		return other
	case b.known == nil:
		b.known = map[string]bool{}
	}
	b.known[s] = true
	return s
}

// profileOf names what kind of slice it is: a MIG profile, whole or share.
func profileOf(mode gpu.Mode, profile string) string {
	switch mode {
	case gpu.ModeMIG:
		return profile
	case gpu.ModeShared:
		return "share"
	case gpu.ModeWhole, gpu.ModeFree:
	}
	return "whole"
}

func classOf(s *work.Spec) string { return string(cmp.Or(s.Class, work.Training)) }

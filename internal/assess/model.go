package assess

import (
	"math"
	"strings"
	"unicode"

	"github.com/gpupool/gpupool/internal/gpu"
)

// memorySlack is how far what monitoring counts of a GPU's memory may be off what the
// tables say: the driver keeps some for itself.
const memorySlack = 0.06

// modelOf finds the model that a driver calls "NVIDIA A100-SXM4-80GB", or gpupool
// "A100-80GB"; of those that differ in memory alone the one of the name, else the one of
// the memory that was measured. It returns nil for what the tables do not know.
func modelOf(models []gpu.Model, name string, memMiB float64) *gpu.Model {
	words := wordsOf(name)
	var like []*gpu.Model
	for i := range models {
		m := &models[i]
		if strings.EqualFold(m.Key, name) {
			return m
		}
		series, size := splitKey(m.Key)
		if !all(words, series) {
			continue
		}
		if size != "" && words[size] {
			return m
		}
		like = append(like, m)
	}
	var best *gpu.Model
	off := memorySlack
	for _, m := range like {
		if d := math.Abs(memMiB/float64(m.MemoryMiB) - 1); memMiB > 0 && d < off {
			best, off = m, d
		}
	}
	if best == nil && len(like) == 1 && memMiB == 0 {
		best = like[0]
	}
	return best
}

// splitKey takes the memory off a key such as A100-80GB.
func splitKey(key string) (series []string, size string) {
	for w := range strings.SplitSeq(strings.ToLower(key), "-") {
		if strings.HasSuffix(w, "gb") {
			size = w
		} else {
			series = append(series, w)
		}
	}
	return series, size
}

func wordsOf(name string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		out[w] = true
	}
	return out
}

func all(words map[string]bool, of []string) bool {
	for _, w := range of {
		if !words[w] {
			return false
		}
	}
	return true
}

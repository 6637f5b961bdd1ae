package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/work"
)

// Duration is a time.Duration written as people write it: 30s, 5m, 1h30m.
type Duration time.Duration

func (d Duration) String() string { return work.FormatDuration(time.Duration(d)) }

// MarshalText writes the duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(b []byte) error {
	x, err := time.ParseDuration(string(b))
	if err != nil || x < 0 {
		return fmt.Errorf("expected a duration such as 30s, 5m or 1h30m, got %q", b)
	}
	*d = Duration(x)
	return nil
}

// Percent is a share, 0 to 1, written 60%.
type Percent float64

func (p Percent) String() string {
	return strconv.FormatFloat(math.Round(float64(p)*1e6)/1e4, 'f', -1, 64) + "%"
}

// MarshalText writes the share.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a share.
func (p *Percent) UnmarshalText(b []byte) error {
	s, isPercent := strings.CutSuffix(strings.TrimSpace(string(b)), "%")
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !isPercent || !(f >= 0 && f <= 100) {
		return fmt.Errorf("expected a share such as 60%%, got %q", b)
	}
	*p = Percent(f / 100)
	return nil
}

// Size is an amount of memory in MiB, written 100MiB or 2GiB.
type Size int64

func (s Size) String() string { return work.FormatMiB(int64(s)) }

// MarshalText writes the size.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(b []byte) error {
	m, err := work.ParseMiB(string(b))
	if err != nil {
		return err
	}
	*s = Size(m)
	return nil
}

package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/work"
)

// Driver puts a watch around a driver: what its calls take, and how they fail.
func (m *Metrics) Driver(name string, d driver.Driver) driver.Driver {
	return watched{d, m, name}
}

type watched struct {
	driver.Driver
	m    *Metrics
	name string
}

// done counts a call. One whose context ended says nothing about the driver.
func (w watched) done(op string, start time.Time, err error) {
	switch {
	case err == nil:
		w.m.vecs.driverCalls.WithLabelValues(w.name, op).Observe(time.Since(start).Seconds())
	case errors.Is(err, context.Canceled):
	default:
		code := driver.Code("unknown")
		if e, is := errors.AsType[*driver.Error](err); is {
			code = e.Code
		}
		w.m.vecs.driverErrors.WithLabelValues(w.name, op, string(code)).Inc()
	}
}

// Observe implements driver.Driver.
func (w watched) Observe(ctx context.Context) (inv driver.Inventory, err error) {
	defer func(start time.Time) { w.done("observe", start, err) }(time.Now())
	return w.Driver.Observe(ctx)
}

// Carve implements driver.Driver.
func (w watched) Carve(ctx context.Context, p driver.Part) (devices []string, err error) {
	defer func(start time.Time) { w.done("carve", start, err) }(time.Now())
	return w.Driver.Carve(ctx, p)
}

// Free implements driver.Driver.
func (w watched) Free(ctx context.Context, host string, o work.Owner) (err error) {
	defer func(start time.Time) { w.done("free", start, err) }(time.Now())
	return w.Driver.Free(ctx, host, o)
}

// Usage implements driver.Driver.
func (w watched) Usage(ctx context.Context) (s []driver.Sample, err error) {
	defer func(start time.Time) { w.done("usage", start, err) }(time.Now())
	return w.Driver.Usage(ctx)
}

// Access implements driver.Accesser; a driver that is none has nothing to say.
func (w watched) Access(ctx context.Context, host string, o work.Owner) (a driver.Access, err error) {
	d, has := w.Driver.(driver.Accesser)
	if !has {
		return driver.Access{}, nil
	}
	defer func(start time.Time) { w.done("access", start, err) }(time.Now())
	return d.Access(ctx, host, o)
}

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/journaltest"
	"github.com/gpupool/gpupool/internal/journal/redis"
	"github.com/gpupool/gpupool/internal/journal/redis/redistest"
)

var ctx = context.Background()

// names tells the journals on one server apart.
var names atomic.Int64

func code(err error) journal.Code {
	if e, ok := errors.AsType[*journal.Error](err); ok {
		return e.Code
	}
	return ""
}

func open(t testing.TB, o redis.Options) *redis.Journal {
	t.Helper()
	j, err := redis.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() }) //nolint:errcheck // again, mostly
	return j
}

// lead opens a journal and leads.
func lead(t testing.TB, o redis.Options) *redis.Journal {
	t.Helper()
	j := open(t, o)
	leads(t, j)
	return j
}

func leads(t testing.TB, j *redis.Journal) <-chan struct{} {
	t.Helper()
	bound, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	lost, err := j.Lead(bound, "http://leader")
	if err != nil {
		t.Fatal(err)
	}
	return lost
}

func conformance(t *testing.T, url string, more func(*redis.Options)) {
	place := func(t *testing.T) func() journal.Journal {
		name := fmt.Sprintf("%s?name=j%d", url, names.Add(1))
		return func() journal.Journal {
			o := redis.Options{URL: name, Lease: time.Minute}
			if more != nil {
				more(&o)
			}
			return lead(t, o)
		}
	}
	journaltest.Run(t, place)
	journaltest.RunRestore(t, place)
}

func TestJournal(t *testing.T) {
	s := redistest.Start(t, "appendfsync", "everysec") // the disk is not what this is about
	conformance(t, s.URL(), nil)
}

func TestShared(t *testing.T) {
	s := redistest.Start(t, "appendfsync", "everysec")
	journaltest.RunShared(t, func(t *testing.T) journaltest.Place {
		name := fmt.Sprintf("s%d", names.Add(1))
		return journaltest.Place{
			Open: func() journaltest.SharedJournal {
				return open(t, redis.Options{URL: s.URL() + "?name=" + name, Lease: time.Minute})
			},
			Expire: func() { s.Do("DEL", "gpupool:{"+name+"}:lease") },
		}
	})
}

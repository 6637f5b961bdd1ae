package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/journaltest"
	"github.com/gpupool/gpupool/internal/journal/memory"
)

func TestJournal(t *testing.T) {
	place := func(*testing.T) func() journal.Journal {
		j := memory.New()
		return func() journal.Journal {
			j.Open()
			return j
		}
	}
	journaltest.Run(t, place)
	journaltest.RunRestore(t, place)
}

func TestFailWith(t *testing.T) {
	j := memory.New()
	full := errors.New("full")
	j.FailWith(func(op string) error {
		if op == "append" {
			return full
		}
		return nil
	})
	if _, err := j.Append(context.Background(), [][]byte{{1}}); !errors.Is(err, full) {
		t.Fatalf("got %v, want the planted failure", err)
	}
	j.FailWith(nil)
	if last, err := j.Append(context.Background(), [][]byte{{1}}); err != nil || last != 1 {
		t.Fatalf("got %d, %v: a failed append must store nothing", last, err)
	}
}

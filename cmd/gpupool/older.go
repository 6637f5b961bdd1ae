package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/work"
)

// notOlder refuses a state that is older than what ran on this machine: it would give
// numbers and epochs of tasks again that were used already, and so take what ran then for
// what is to run now. Facts are durable before anything starts, so only a journal that was
// put back can be behind.
func notOlder(h *host.Host, runFolder string) error {
	entries, err := os.ReadDir(runFolder)
	if err != nil {
		return fmt.Errorf("the folder of tasks cannot be read: %w", err)
	}
	newest := map[work.TaskID]uint32{}
	for _, e := range entries {
		var task uint64
		var epoch uint32
		var member int
		if n, err := fmt.Sscanf(e.Name(), "%d.%d.%d", &task, &epoch, &member); n == 3 && err == nil {
			newest[work.TaskID(task)] = max(newest[work.TaskID(task)], epoch)
		}
	}
	h.Read(func(e *engine.Engine) {
		for id, epoch := range newest { // order: any one is enough to refuse
			t := e.Task(id)
			if id > e.LastTask() || t != nil && t.Epoch < epoch {
				err = fmt.Errorf("the journal is older than what ran here: it does not know that task %d was started for the %d. time. If it was put back to older data on purpose, "+
					"end what still runs and move %s away (docs/operations.md); else find the newer journal", id, epoch, filepath.Clean(runFolder))
				return
			}
		}
	})
	return err
}

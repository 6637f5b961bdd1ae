package engine

import (
	"fmt"

	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// ailEvent is an operator's or the driver's word on a GPU, or a fault of a program.
func (w *world) ailEvent() Event {
	host := w.hosts[w.health.IntN(len(w.hosts))]
	g := w.e.cluster.GPUByID(host.GPUs[w.health.IntN(len(host.GPUs))].ID)
	if g == nil {
		return nil // its host has not been seen yet
	}
	switch n := w.health.IntN(10); {
	case n < 4:
		do := []gpu.Verdict{gpu.VerdictNone, gpu.VerdictNone, gpu.VerdictNone, gpu.VerdictCordon, gpu.VerdictDrain, gpu.VerdictBroken}[w.health.IntN(6)]
		return JudgeGPU{g.Number, do, []string{"", "a fan", "a cable"}[w.health.IntN(3)], "ann"}
	case n < 7:
		v := Verdict{ID: g.ID, Do: []gpu.Verdict{gpu.VerdictCordon, gpu.VerdictDrain}[w.health.IntN(2)], Why: "XID 48", Mend: "a reset"}
		if _, ails := w.wants[g.ID]; ails {
			delete(w.wants, g.ID)
		} else {
			w.wants[g.ID] = v
		}
	case n < 9:
		f := Fault{ID: g.ID, At: w.now - work.Time(w.health.IntN(1e9)), Code: "XID 31", What: "page fault"}
		if len(g.Held) > 0 && w.health.IntN(2) == 0 {
			f.Owner = g.Held[w.health.IntN(len(g.Held))].Owner
		} else if len(w.tasks) > 0 && w.health.IntN(2) == 0 { // of a slice that is gone, or that never was
			f.Owner = work.Owner{Task: w.tasks[w.health.IntN(len(w.tasks))] + work.TaskID(w.health.IntN(2)), Epoch: uint32(w.health.IntN(3))}
		}
		w.faults = append(w.faults, f)
		w.faults = w.faults[max(0, len(w.faults)-5):]
	default:
		w.sharing = []string{"", gpu.SharingMPS}[w.health.IntN(2)]
	}
	return w.inventory()
}

// word is what was said of a GPU, by operators and by its driver.
type word struct{ operator, driver Said }

func (w *world) said() map[int]word {
	out := map[int]word{}
	for n := range w.e.ills {
		out[n] = w.wordOn(n)
	}
	return out
}

func (w *world) wordOn(n int) (x word) {
	if s := w.e.ills[n].operator; s != nil {
		x.operator = *s
	}
	if s := w.e.ills[n].driver; s != nil {
		x.driver = *s
	}
	return x
}

// nobodyOverruled looks whether an event changed what somebody else had said of a GPU.
func (w *world) nobodyOverruled(was map[int]word, ev Event) error {
	_, operator := ev.(JudgeGPU)
	_, driver := ev.(Inventory)
	for _, g := range w.e.GPUs() {
		is := w.wordOn(g.Number)
		if is.operator != was[g.Number].operator && !operator {
			return fmt.Errorf("after %T: operators said %+v of GPU %d, now it is %+v", ev, was[g.Number].operator, g.Number, is.operator)
		}
		if is.driver != was[g.Number].driver && !driver {
			return fmt.Errorf("after %T: the driver said %+v of GPU %d, now it is %+v", ev, was[g.Number].driver, g.Number, is.driver)
		}
	}
	return nil
}

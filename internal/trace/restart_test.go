package trace

import (
	"testing"
	"time"
)

func TestRestartable(t *testing.T) {
	x := (&Trace{Tasks: []Task{
		{GPUs: 1, Duration: 2 * time.Hour}, {GPUs: 1, Duration: 30 * time.Minute}, {GPUs: 1, Duration: 2 * time.Hour, Class: Interactive},
		{Milli: 100, GPUMemoryMiB: 10, Duration: 2 * time.Hour},
	}}).Restartable(1)
	for i, want := range []time.Duration{savesIn, 0, 0, savesIn} {
		if got := x.Tasks[i].Grace; got != want {
			t.Errorf("task %d has a grace of %s, want %s", i, got, want)
		}
	}
	if a, b := x.Tasks[0].UsedMiB, x.Tasks[2].UsedMiB; a <= 0 || a > trainingTop || b != 0 || x.Tasks[3].UsedMiB != 10 {
		t.Errorf("memory in use: %d of training, %d of a notebook, %d of a part", a, b, x.Tasks[3].UsedMiB)
	}
}

func TestComputing(t *testing.T) {
	x := Trace{Tasks: []Task{
		{GPUs: 3, Duration: 100, Load: 10, Phases: []Phase{{For: 6, Compute: 0.3}, {For: 3}}}, // 60 of 100
		{Milli: 1000, Duration: 100, Phases: []Phase{{For: 1, Compute: 0.01}}},                // too little
	}}
	if got, want := x.Computing(0.05), 180./400; got < want-1e-9 || got > want+1e-9 {
		t.Errorf("got %g, want %g", got, want)
	}
}

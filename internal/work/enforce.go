package work

import "slices"

// Enforcement says what keeps a lease to the slices that it holds, and others off them.
type Enforcement string

// The kinds of enforcement.
const (
	EnforcedExclusive Enforcement = "exclusive"     // whole GPUs: nobody else is on them
	EnforcedHard      Enforcement = "hard"          // MIG: the hardware parts compute, memory and faults
	EnforcedMemory    Enforcement = "memory-capped" // a share by MPS: memory and threads are capped; faults hit all that share
	EnforcedSoft      Enforcement = "soft"          // a share by time slices: nothing but its word holds it
)

// Enforcements lists them, the strongest first.
func Enforcements() []Enforcement {
	return []Enforcement{EnforcedExclusive, EnforcedHard, EnforcedMemory, EnforcedSoft}
}

// Weaker is the weaker of two; "" says nothing, as of a lease without GPUs.
func Weaker(a, b Enforcement) Enforcement {
	if slices.Index(Enforcements(), a) > slices.Index(Enforcements(), b) {
		return a
	}
	return b
}

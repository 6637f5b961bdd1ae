// Package bench measures gpupool against published placement rules and against
// itself: packing, MIG placement, the speed of decisions, and of the simulator.
//
// Each experiment is a function of its options and returns rows that carry what
// was measured and what was not. Nothing here decides a test: the numbers are for
// people to read and to repeat.
package bench

// OptionError is an option that an experiment cannot use.
type OptionError struct{ Msg string }

func (e *OptionError) Error() string { return e.Msg }

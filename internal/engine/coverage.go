package engine

// Coverage counts the tasks that ended by themselves after something was said, at their
// submission, about how long they run, and how many of these ended within the P90 said.
func (e *Engine) Coverage() (within, of int) { return e.forecast.Coverage() }

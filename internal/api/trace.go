package api

import "regexp"

// TraceHeader says which trace a submission belongs to.
type TraceHeader struct {
	Trace string `header:"Traceparent" doc:"W3C Trace Context: the task's trace joins this one, and its process gets it as TRACEPARENT. What is malformed is ignored"`
}

// traceparent is one of W3C Trace Context, of this version or a later one.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[[:graph:]]{1,64})?$`)

// trace is what the header says, or nothing: a trace is no reason to refuse a task.
func (h TraceHeader) trace() string {
	if traceparent.MatchString(h.Trace) {
		return h.Trace
	}
	return ""
}

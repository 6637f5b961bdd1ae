package client

import "strings"

// WithTrace sends a W3C traceparent with every call: tasks that are submitted join that
// trace. One that is empty, or could not be a header, is not sent: a trace is no reason for
// a call to fail.
func WithTrace(traceparent string) Option {
	if strings.ContainsFunc(traceparent, func(r rune) bool { return r < '!' || r > '~' }) {
		traceparent = ""
	}
	return func(c *Client) { c.trace = traceparent }
}

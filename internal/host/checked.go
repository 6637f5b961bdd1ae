//go:build invariants

package host

// checked: this build verifies every invariant after each batch and stops at the
// first that is broken, before anything of the batch leaves (go build -tags invariants).
const checked = true

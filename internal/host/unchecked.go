//go:build !invariants

package host

const checked = false

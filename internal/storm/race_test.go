//go:build race

package storm

// underRace: histories have no goroutines among which anything could race, and take ten times as
// long; make test plays them without the race detector too.
const underRace = true

//go:build !race

package storm

const underRace = false // see race_test.go

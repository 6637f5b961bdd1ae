//go:build !race

package engine

const defaultHistories = 10_000

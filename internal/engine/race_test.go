//go:build race

package engine

const defaultHistories = 200

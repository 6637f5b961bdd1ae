//go:build !linux

package doctor

import "errors"

func readClock() (Clock, error) { return Clock{}, errors.New("only Linux tells") }

func room(string) (uint64, string) { return 0, "" }

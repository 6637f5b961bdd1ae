package work

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of what one submission may ask for.
const (
	MaxArray = 10_000 // tasks of one array
	MaxAfter = 1_000  // tasks that a task waits for
)

// Array asks for one task for each index First, First+Step, … up to Last. At most
// Limit of them hold something at once; 0 = any number.
type Array struct {
	First int `json:"first"`
	Last  int `json:"last"`
	Step  int `json:"step,omitempty"` // 0 = 1
	Limit int `json:"limit,omitempty"`
}

// Size is the number of indices.
func (a Array) Size() int { return (a.Last-a.First)/max(a.Step, 1) + 1 }

// Index is the i-th index, from 0.
func (a Array) Index(i int) int { return a.First + i*max(a.Step, 1) }

// Validate checks an array.
func (a Array) Validate() error {
	switch {
	case a.First < 0 || a.Last < a.First || a.Step < 0 || a.Limit < 0:
		return Errorf(CodeInvalid, "array %s is not understood: expected FIRST-LAST, such as 0-99, 0-98:2 for every second, 0-99%%10 for ten at once", a)
	case a.Size() > MaxArray:
		return Errorf(CodeInvalid, "array %s has %d tasks: expected at most %d", a, a.Size(), MaxArray)
	}
	return nil
}

func (a Array) String() string {
	s := fmt.Sprintf("%d-%d", a.First, a.Last)
	if a.Step > 1 {
		s += ":" + strconv.Itoa(a.Step)
	}
	if a.Limit > 0 {
		s += "%" + strconv.Itoa(a.Limit)
	}
	return s
}

// ParseArray reads FIRST-LAST[:STEP][%LIMIT].
func ParseArray(s string) (Array, error) {
	bad := Errorf(CodeInvalid, "array %q is not understood: expected FIRST-LAST, such as 0-99, 0-98:2 for every second, 0-99%%10 for ten at once", s)
	var a Array
	rest, limit, limited := strings.Cut(s, "%")
	rest, step, stepped := strings.Cut(rest, ":")
	first, last, ranged := strings.Cut(rest, "-")
	if !ranged {
		last = first
	}
	for _, x := range []struct {
		text string
		used bool
		to   *int
	}{{first, true, &a.First}, {last, true, &a.Last}, {step, stepped, &a.Step}, {limit, limited, &a.Limit}} {
		if !x.used {
			continue
		}
		n, err := strconv.ParseUint(x.text, 10, 31)
		if err != nil {
			return a, bad
		}
		*x.to = int(n)
	}
	if stepped && a.Step == 0 || limited && a.Limit == 0 {
		return a, bad
	}
	return a, a.Validate()
}

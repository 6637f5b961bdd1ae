package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/work"
)

// taskRef is a task as people name it: 17, or 12[3] for index 3 of the array whose
// first task is 12.
type taskRef struct {
	id      uint64
	index   int
	indexed bool
}

func parseRef(s string) (taskRef, error) {
	number, rest, indexed := strings.Cut(s, "[")
	id, err := taskID(number)
	if err == nil && !indexed {
		return taskRef{id: id}, nil
	}
	index, closed := strings.CutSuffix(rest, "]")
	n, bad := strconv.ParseUint(index, 10, 31)
	if err != nil || !closed || bad != nil {
		return taskRef{}, usagef("expected a task's number, such as 17, or 12[3] for one of an array, got %q: gpupool ps lists them", s)
	}
	return taskRef{id, int(n), true}, nil
}

// parseRefs reads them all before the server is asked for anything.
func parseRefs(args []string) ([]taskRef, error) {
	var out []taskRef
	for _, s := range args {
		r, err := parseRef(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// find is the number of the task: of one in an array it follows from what the array
// was submitted as.
func (r taskRef) find(ctx context.Context, api *client.Client) (uint64, error) {
	if !r.indexed {
		return r.id, nil
	}
	t, err := api.Task(ctx, r.id)
	if err != nil {
		return 0, err
	}
	a, err := work.ParseArray(t.ArraySpec)
	if t.Array == 0 || err != nil {
		return 0, fmt.Errorf("task %d is of no array: name it %d", r.id, r.id)
	}
	step := max(a.Step, 1)
	if r.index < a.First || r.index > a.Last || (r.index-a.First)%step != 0 {
		return 0, fmt.Errorf("array %d has no index %d: it is %s", t.Array, r.index, t.ArraySpec)
	}
	return t.Array + uint64((r.index-a.First)/step), nil
}

// ref is how ps names a task.
func ref(t apitype.Task) string {
	if t.Index == nil {
		return fmt.Sprint(t.ID)
	}
	return fmt.Sprintf("%d[%d]", t.Array, *t.Index)
}

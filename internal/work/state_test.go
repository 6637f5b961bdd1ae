package work

import (
	"slices"
	"strings"
	"testing"
)

// TestStateArrows walks every pair of states against this written-out table:
// a row is where a task stands, a column where it may go next.
func TestStateArrows(t *testing.T) {
	const table = `
from      queued starting running yielding parked succeeded failed cancelled expired
queued    -      yes      -       -        -      -         yes    yes       yes
starting  yes    -        yes     -        -      yes       yes    yes       -
running   -      -        -       yes      yes    yes       yes    yes       -
yielding  yes    -        yes     -        -      yes       yes    yes       -
parked    yes    -        yes     -        -      yes       yes    yes       -
succeeded -      -        -       -        -      -         -      -         -
failed    -      -        -       -        -      -         -      -         -
cancelled -      -        -       -        -      -         -      -         -
expired   -      -        -       -        -      -         -      -         -
`
	rows := strings.Split(strings.TrimSpace(table), "\n")
	columns := strings.Fields(rows[0])[1:]
	if len(rows)-1 != len(States()) || len(columns) != len(States()) {
		t.Fatalf("the table has %d rows and %d columns for %d states", len(rows)-1, len(columns), len(States()))
	}
	for i, row := range rows[1:] {
		cells := strings.Fields(row)
		from := State(cells[0])
		if from != States()[i] || State(columns[i]) != from {
			t.Fatalf("row %d is about %s, wanted %s", i, from, States()[i])
		}
		for k, cell := range cells[1:] {
			if got := from.CanBecome(State(columns[k])); got != (cell == "yes") {
				t.Errorf("%s may become %s: %v, the table says %s", from, columns[k], got, cell)
			}
		}
		if end := !slices.Contains(cells, "yes"); from.Terminal() != end {
			t.Errorf("%s is terminal: %v, the table says %v", from, from.Terminal(), end)
		}
	}
	if State("nonsense").CanBecome(Queued) || Queued.CanBecome("nonsense") {
		t.Error("an unknown state has an arrow")
	}
}

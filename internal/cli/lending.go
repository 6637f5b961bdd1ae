package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/api/client"
)

// loan is a row of the ledger of lending.
type loan struct {
	Lender string `json:"lender"`
	apitype.Loan
}

func (a *App) lendingCmd() *cobra.Command {
	return &cobra.Command{
		Use: "lending", Short: "Say which pool owes which: what was lent, and how it came back", Args: cobra.NoArgs,
		Long: `Lists what pools have lent to each other (setting pools.borrow_from): what tasks of the borrower hold
of the lender now, how much it was so far, and how long it took until what was asked back was free.`,
		RunE: a.call(func(ctx context.Context, api *client.Client, _ []string) error {
			pools, err := api.Pools(ctx)
			if err != nil {
				return err
			}
			var all []loan
			for _, p := range pools {
				for _, l := range p.Lent {
					all = append(all, loan{p.Name, l})
				}
			}
			if len(all) == 0 {
				fmt.Fprintln(a.Err, "no pool has lent anything yet: a pool borrows from those in its setting borrow_from once more tasks wait than ask_for_more_at")
			}
			return a.print(listOf(all), func(w io.Writer, _ bool) { lendingTable(w, all) })
		}),
	}
}

func lendingTable(w io.Writer, all []loan) {
	took := func(s float64, called int) string {
		if called == 0 {
			return "-"
		}
		return span(time.Duration(s * float64(time.Second)))
	}
	var rows [][]string
	for _, l := range all {
		rows = append(rows, []string{l.Lender, l.Borrower, gpuCount(l.GPUs), gpuCount(l.GPUHours), fmt.Sprint(l.Loans), fmt.Sprint(l.Called), took(l.MeanS, l.Called), took(l.LongestS, l.Called)})
	}
	tabs(w, []string{"LENDER", "BORROWER", "GPUS NOW", "GPU HOURS", "LOANS", "ASKED BACK", "BACK IN", "AT MOST"}, rows)
}

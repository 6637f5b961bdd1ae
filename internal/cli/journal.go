package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/config"
)

// What can be done with a journal.
const (
	JournalExport  = "export"
	JournalImport  = "import"
	JournalVerify  = "verify"
	JournalCompact = "compact"
	JournalInspect = "inspect"
	JournalAdopt   = "adopt"
)

// JournalOptions is what a command of the group journal was asked for.
type JournalOptions struct {
	Do      string // one of the constants above
	Address string // of the journal: a file, a data folder, or the URL of a shared one
	File    string // the copy to write or read; "" = none
	Data    string // this server's data folder, for adopt
	Config  config.Config

	Progress func(done int)            // called now and then with records done; never nil
	Show     func(apitype.Event) error // for inspect: takes a fact
	Task     uint64                    // for inspect: only facts about it; 0 = all
	From, To uint64                    // for inspect: only these; 0 = from the first, to the last
	Tail     int                       // for inspect: only so many of the newest; 0 = all
	Follow   bool                      // for inspect: go on with what comes (shared journals)
}

// JournalReport is what there is to say of a journal afterwards.
type JournalReport struct {
	Journal  string `json:"journal"`
	Snapshot uint64 `json:"snapshot"` // the record that the snapshot stands for; 0 = none
	Records  int    `json:"records"`  // after the snapshot
	Last     uint64 `json:"last"`
	Tasks    int    `json:"tasks"`          // in the state that follows; 0 where it was not made
	File     string `json:"file,omitempty"` // that was written or read
	Site     string `json:"site,omitempty"` // from where adopt moved the journal
	Leader   string `json:"leader,omitempty"`
}

func (a *App) journalCmd() *cobra.Command {
	var file string
	c := &cobra.Command{Use: "journal", Short: "Copy, check and read the journal", Long: `Copy, check and read the journal: the state of the pool.

ADDRESS is a file (journal.db, or a copy made by export), a data folder, or the address of a shared
journal such as redis://127.0.0.1:6379. Without one it is the journal of --config, else of the data folder.
A file that a server has open cannot be used: stop the server first; tasks go on running meanwhile.`}
	run := func(o JournalOptions, says func(w io.Writer, r JournalReport)) func(*cobra.Command, []string) error {
		return func(c *cobra.Command, args []string) error { return a.journal(c.Context(), o, args, file, says) }
	}
	add := func(use, short string, o JournalOptions, args int, says func(w io.Writer, r JournalReport)) {
		c.AddCommand(&cobra.Command{Use: use, Short: short, Args: cobra.RangeArgs(args, args+1), RunE: run(o, says)})
	}
	add("export FILE [ADDRESS]", "Write a copy of the journal into a file", JournalOptions{Do: JournalExport}, 1, func(w io.Writer, r JournalReport) {
		fmt.Fprintf(w, "%s holds records up to %d of %s\n", r.File, r.Last, r.Journal)
	})
	add("import FILE [ADDRESS]", "Put a copy into an empty journal", JournalOptions{Do: JournalImport}, 1, func(w io.Writer, r JournalReport) {
		fmt.Fprintf(w, "%s holds records up to %d, from %s\n", r.Journal, r.Last, r.File)
	})
	add("verify [ADDRESS]", "Check checksums, order, replay and invariants", JournalOptions{Do: JournalVerify}, 0, func(w io.Writer, r JournalReport) {
		fmt.Fprintf(w, "%s is whole: snapshot at %d, %d records after it, up to %d; %d tasks, no invariant broken\n", r.Journal, r.Snapshot, r.Records, r.Last, r.Tasks)
	})
	add("compact [ADDRESS]", "Store a snapshot now, and drop the records that it stands for", JournalOptions{Do: JournalCompact}, 0, func(w io.Writer, r JournalReport) {
		fmt.Fprintf(w, "%s has a snapshot at record %d; %d records were dropped\n", r.Journal, r.Last, r.Records)
	})
	add("adopt [ADDRESS]", "Let servers over this data folder lead a shared journal whose machine is gone", JournalOptions{Do: JournalAdopt}, 0, func(w io.Writer, r JournalReport) {
		fmt.Fprintf(w, "%s: servers over this data folder may lead now; before it was %q. What ran there is lost, and the pool says so\n", r.Journal, r.Site)
	})
	c.AddCommand(a.inspectCmd(&file))
	c.PersistentFlags().StringVar(&file, "config", "", "configuration file of the server, for the journal's address and password")
	return c
}

func (a *App) inspectCmd(file *string) *cobra.Command {
	o := JournalOptions{Do: JournalInspect, Show: a.printEvent}
	c := &cobra.Command{
		Use: "inspect [ADDRESS]", Short: "Read the facts, in words", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.journal(c.Context(), o, args, *file, nil) },
	}
	f := c.Flags()
	f.Uint64Var(&o.Task, "task", 0, "only about this task")
	f.Uint64Var(&o.From, "from", 0, "from this record on")
	f.Uint64Var(&o.To, "to", 0, "up to this record")
	f.IntVar(&o.Tail, "tail", 0, "only so many of the newest")
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with what comes (a shared journal)")
	return c
}

// journal fills in what the options leave open, and runs.
func (a *App) journal(ctx context.Context, o JournalOptions, args []string, file string, says func(io.Writer, JournalReport)) error {
	o.Config = config.Default()
	if file != "" {
		var err error
		if o.Config, err = config.Load(file); err != nil {
			return err
		}
	}
	if o.Do == JournalExport || o.Do == JournalImport {
		o.File, args = args[0], args[1:]
	}
	given := a.flags.data
	if given == "" {
		given = o.Config.Server.Data
	}
	var err error
	if o.Data, err = DataDir(given); err != nil {
		return err
	}
	switch {
	case len(args) == 1:
		o.Address = args[0]
	case o.Config.Journal.Shared():
		o.Address = o.Config.Journal.URL
	default:
		o.Address = o.Data
	}
	if info, err := os.Stat(o.Address); err == nil && info.IsDir() {
		o.Address = filepath.Join(o.Address, "journal.db")
	}
	bar := a.progress(o.Do)
	o.Progress = func(n int) { bar.Add(n) } //nolint:errcheck // a bar is decoration
	r, err := a.Journal(ctx, o)
	bar.Finish() //nolint:errcheck // a bar is decoration
	if err != nil || says == nil {
		return err
	}
	return a.print(r, func(w io.Writer, _ bool) { says(w, r) })
}

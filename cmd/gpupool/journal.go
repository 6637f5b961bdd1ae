package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gpupool/gpupool/internal/api/apitype"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/engine"
	"github.com/gpupool/gpupool/internal/host"
	"github.com/gpupool/gpupool/internal/journal"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/journal/portable"
	"github.com/gpupool/gpupool/internal/journal/redis"
	"github.com/gpupool/gpupool/internal/work"
)

// journalTool does what a command of the group journal asks for.
func journalTool(ctx context.Context, o cli.JournalOptions) (r cli.JournalReport, err error) {
	r.Journal = shownAddress(o.Address)
	writes := o.Do == cli.JournalImport || o.Do == cli.JournalCompact
	j, err := openToLook(ctx, o, writes)
	if err != nil {
		return r, err
	}
	defer j.Close()
	if shared, is := j.(*redis.Journal); is && writes {
		if err := leadAlone(ctx, shared); err != nil {
			return r, err
		}
	}
	switch o.Do {
	case cli.JournalExport:
		return exportJournal(ctx, o, r, j)
	case cli.JournalImport:
		r.File = o.File
		from, err := portable.Open(o.File)
		if err != nil {
			return r, err
		}
		defer from.Close()
		r.Last, err = portable.Import(ctx, from, j, func(uint64) { o.Progress(1) })
		return r, err
	case cli.JournalVerify:
		_, err := recoverJournal(ctx, o, &r, j)
		return r, err
	case cli.JournalCompact:
		w, err := recoverJournal(ctx, o, &r, j)
		if err != nil {
			return r, err
		}
		return r, w.Snapshot(ctx)
	case cli.JournalInspect:
		return r, inspectJournal(ctx, o, j)
	case cli.JournalAdopt:
		shared, is := j.(*redis.Journal)
		if !is {
			return r, fmt.Errorf("%s is not shared: it is where its data folder is", r.Journal)
		}
		r.Site, err = shared.Adopt(ctx)
		return r, err
	}
	return r, fmt.Errorf("%q is not known", o.Do)
}

// shownAddress is an address without a password.
func shownAddress(address string) string {
	if !redis.Is(address) {
		return address
	}
	return redis.Shown(address)
}

// openToLook opens a journal, to write to it only if need be.
func openToLook(ctx context.Context, o cli.JournalOptions, writes bool) (journal.Journal, error) {
	c := o.Config.Journal
	switch {
	case redis.Is(o.Address):
		ro := redisOptions(c)
		ro.URL = o.Address
		if o.Do == cli.JournalAdopt {
			if err := makeDataDir(o.Data); err != nil {
				return nil, err
			}
			site, err := siteOf(o.Data)
			if err != nil {
				return nil, err
			}
			ro.Site = site
		}
		return redis.Open(ctx, ro)
	case portable.Is(o.Address):
		return portable.Open(o.Address)
	}
	if o.Do == cli.JournalImport {
		if err := os.MkdirAll(filepath.Dir(o.Address), 0o700); err != nil {
			return nil, err
		}
	}
	return bolt.Open(o.Address, bolt.Options{ReadOnly: !writes})
}

// leadAlone takes the lead of a shared journal that no server leads.
func leadAlone(ctx context.Context, j *redis.Journal) error {
	s, err := j.Status(ctx)
	if err != nil {
		return err
	}
	if s.Leader != "" {
		return fmt.Errorf("the server at %s leads this journal and writes it (it compacts it by itself, too): stop all servers first", s.Leader)
	}
	bound, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := j.Lead(bound, "gpupool-journal"); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("another server took the lead of this journal meanwhile: stop all servers first")
		}
		return err
	}
	return nil
}

// exportJournal writes a copy; the file appears when it is whole.
func exportJournal(ctx context.Context, o cli.JournalOptions, r cli.JournalReport, j journal.Journal) (cli.JournalReport, error) {
	r.File = o.File
	f, err := os.CreateTemp(filepath.Dir(o.File), "."+filepath.Base(o.File)+"-*")
	if err != nil {
		return r, fmt.Errorf("the copy cannot be written: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // renamed already when all went well
	r.Last, err = portable.Export(ctx, j, f, func(uint64) { o.Progress(1) })
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), o.File)
	}
	return r, err
}

// counting passes a journal on and counts what it tells.
type counting struct {
	journal.Journal
	o cli.JournalOptions
	r *cli.JournalReport
}

// Load implements journal.Journal.
func (c counting) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	return c.Journal.Load(ctx, func(seq uint64, b []byte) error {
		c.r.Snapshot, c.r.Last = seq, seq
		return snapshot(seq, b)
	}, func(seq uint64, b []byte) error {
		c.r.Records++
		c.r.Last = seq
		c.o.Progress(1)
		return record(seq, b)
	})
}

// recoverJournal makes the state that a journal holds, and checks it.
func recoverJournal(ctx context.Context, o cli.JournalOptions, r *cli.JournalReport, j journal.Journal) (*host.Writer, error) {
	w, err := host.Recover(ctx, engineConfig(cli.ServeOptions{Config: o.Config}), counting{j, o, r}, 0)
	if err != nil {
		return nil, err
	}
	if err := w.Engine.Check(); err != nil {
		return nil, fmt.Errorf("%s can be read, and its state breaks an invariant: %w", r.Journal, err)
	}
	r.Tasks = len(w.Engine.Tasks())
	return w, nil
}

// inspectJournal shows facts.
func inspectJournal(ctx context.Context, o cli.JournalOptions, j journal.Journal) error {
	var last []apitype.Event // for the newest alone
	tenants := map[work.TaskID]string{}
	read := func(seq uint64, rec []byte) error {
		ev, err := eventOf(seq, rec, tenants)
		switch {
		case err != nil:
			return err
		case seq < o.From, o.To > 0 && seq > o.To, o.Task > 0 && ev.Task != o.Task:
			return nil
		case o.Tail == 0:
			return o.Show(ev)
		}
		if last = append(last, ev); len(last) > 2*o.Tail {
			last = append([]apitype.Event(nil), last[o.Tail:]...)
		}
		return nil
	}
	end := uint64(0)
	err := j.Load(ctx, func(seq uint64, state []byte) error {
		end = seq
		e, err := engine.Restore(engineConfig(cli.ServeOptions{Config: o.Config}), state)
		if err == nil {
			for _, t := range e.Tasks() {
				tenants[t.ID] = t.Spec.Tenant
			}
		}
		return err
	}, func(seq uint64, rec []byte) error {
		end = seq
		return read(seq, rec)
	})
	if err != nil {
		return err
	}
	for _, ev := range last[max(0, len(last)-o.Tail):] {
		if err := o.Show(ev); err != nil {
			return err
		}
	}
	if !o.Follow {
		return nil
	}
	shared, is := j.(journal.Shared)
	if !is {
		return errors.New("only a shared journal can be followed here: for a server's own there is gpupool events")
	}
	o.Tail = 0
	err = shared.Follow(ctx, end, func(uint64, []byte) error { return io.ErrUnexpectedEOF }, read)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the journal was compacted faster than it was read here: begin again")
	}
	return err
}

// eventOf is a record as a person may see it: without environments and tokens.
func eventOf(seq uint64, rec []byte, tenants map[work.TaskID]string) (ev apitype.Event, err error) {
	at, f, err := engine.Decode(rec)
	if err != nil {
		return ev, fmt.Errorf("record %d: %w", seq, err)
	}
	switch x := f.(type) {
	case engine.Submitted:
		spec := *x.Spec
		spec.Env = nil
		x.Spec = &spec
		tenants[x.Task] = spec.Tenant
		f = x
	case engine.TenantSet:
		x.Tenant.Tokens = nil
		f = x
	}
	id := engine.TaskOf(f)
	return apitype.Event{Seq: seq, At: at.Std(), Kind: f.Kind(), Task: uint64(id), Tenant: cmp.Or(tenants[id], ""), Fact: f}, nil
}

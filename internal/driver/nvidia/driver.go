package nvidia

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gpupool/gpupool/internal/driver"
	"github.com/gpupool/gpupool/internal/gpu"
	"github.com/gpupool/gpupool/internal/work"
)

// Options of a Driver.
type Options struct {
	Dir     string        // for its files; it alone uses it
	Helper  []string      // the program, with its arguments, that runs HelperMain
	Env     []string      // for the helper, beside this process's own
	Timeout time.Duration // of one call to NVML, default 10 s; MIG steps may take three times as long, a mode change six times
	Host    string        // the name of this machine in the pool; default its host name
	Adopt   []string      // GPUs, by index or UUID, to take over with what idles on them
	Exclude []string      // GPUs to leave alone
	MPS     MPS
	DCGM    string // URL of dcgm-exporter's metrics; "" = none
	Root    string // where /dev and what /proc says of the machine are; "" = /. For tests
	Log     *slog.Logger
}

// Driver is a driver.Driver over the GPUs of this machine.
type Driver struct {
	o     Options
	lib   library
	store store
	locks locks // of owners ("owner 17.1.0") and of GPUs (their UUIDs)
	boot  string
	mps   *daemons
	dcgm  *dcgm

	saving sync.Mutex // of machine.json

	mu     sync.Mutex // of all below
	closed bool
	parts  map[work.Owner]*record
	freed  freed
	host   machine
	cards  map[string]*card // by UUID, those of host
	health health
}

// machine is what stays the same about this machine, in machine.json: a host that comes
// back with other figures is another host to the pool.
type machine struct {
	Name     string  `json:"name"`
	CPUMilli int64   `json:"cpu_milli"`
	MemMiB   int64   `json:"memory_mib"`
	GPUs     []known `json:"gpus"`
}

// known is a GPU that was seen once.
type known struct {
	UUID    string    `json:"uuid"`
	Name    string    `json:"name"`
	Given   bool      `json:"given"` // gpupool may use it
	Model   gpu.Model `json:"model"`
	Settled bool      `json:"settled"` // its MIG geometry is the driver's own
}

// card is a GPU and what is known of it now.
type card struct {
	known
	at       listed // zero until it was seen
	why      string // why it may not be used though it is there; "" = it may
	absent   bool   // the driver does not list it
	adopt    bool
	geo      *gpu.Geometry
	last     *look
	failed   int // looks in a row
	retry    time.Time
	fault    string    // of the last look, when it failed
	odd      string    // what is strange about it now
	hotSince time.Time // clocks are held down by the hardware
}

// New finds the GPUs of this machine and what was made on them before. It fails with
// ErrNone where there are none.
func New(ctx context.Context, o Options) (*Driver, error) {
	if !Built {
		return nil, errNotBuilt
	}
	if len(o.Helper) == 0 {
		return nil, errors.New("the NVIDIA driver needs the command of its helper")
	}
	return open(ctx, o, newHelper(helperOptions{Command: o.Helper, Env: o.Env, Timeout: o.Timeout, Log: o.Log}))
}

// open is New over any library.
func open(ctx context.Context, o Options, lib library) (*Driver, error) {
	d := &Driver{o: o, lib: lib, cards: map[string]*card{}}
	err := d.prepare()
	if err == nil {
		err = d.find(ctx)
	}
	if err == nil {
		err = d.claim(ctx)
	}
	if err != nil {
		lib.close()
		return nil, err
	}
	return d, nil
}

// prepare reads what is kept.
func (d *Driver) prepare() (err error) {
	if d.store, err = openStore(d.o.Dir); err != nil {
		return err
	}
	if d.boot, err = bootID(d.o.Root); err != nil {
		return err
	}
	if d.parts, err = d.store.records(); err != nil {
		return err
	}
	for o, r := range d.parts {
		if r.Boot != d.boot { // the machine was started since: nothing of it stands
			d.o.Log.Info("what stood before the machine was started anew is gone", "part", o.String())
			delete(d.parts, o)
			if err := d.store.drop(o); err != nil {
				return err
			}
		}
	}
	name := filepath.Join(d.o.Dir, "machine.json")
	if err = getFile(name, &d.host); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := d.health.load(filepath.Join(d.o.Dir, "health.json"), d.boot); err != nil {
		return err
	}
	if d.mps, err = openMPS(d.o.MPS, filepath.Join(d.o.Dir, "mps"), d.o.Log); err != nil {
		return err
	}
	d.dcgm = newDCGM(d.o.DCGM)
	return d.measure()
}

// measure compares the machine with what it was. Small differences come with a new
// kernel and are no other machine.
func (d *Driver) measure() error {
	cpu, mem, err := resources(d.o.Root)
	if err != nil {
		return err
	}
	if d.host.Name == "" {
		d.host.Name = d.o.Host
		if d.host.Name == "" {
			if d.host.Name, err = os.Hostname(); err != nil {
				return err
			}
		}
	}
	if d.o.Host != "" {
		d.host.Name = d.o.Host
	}
	if !near(d.host.CPUMilli, cpu) || !near(d.host.MemMiB, mem) {
		d.host.CPUMilli, d.host.MemMiB = cpu, mem
	}
	return nil
}

func near(was, is int64) bool { return is >= was-was/20 && is <= was+was/20 }

// find asks the driver for its GPUs and their geometry.
func (d *Driver) find(ctx context.Context) error {
	hi, err := d.lib.call(ctx, request{Op: opHello})
	if isFault(err, nvmlLibraryNotFound, nvmlDriverNotLoaded) && len(d.host.GPUs) == 0 {
		return fmt.Errorf("%w: %w", ErrNone, err)
	}
	if err != nil {
		return explain("NVML cannot be started", err)
	}
	got, err := d.lib.call(ctx, request{Op: opCount})
	if err != nil {
		return explain("the GPUs cannot be counted", err)
	}
	if got.Count == 0 && len(d.host.GPUs) == 0 {
		return ErrNone
	}
	d.o.Log.Info("NVML answers", "driver", hi.Hello.Driver, "nvml", hi.Hello.NVML, "gpus", got.Count)
	for _, k := range d.host.GPUs {
		d.cards[k.UUID] = &card{known: k, absent: true}
	}
	for i := range got.Count {
		d.meet(ctx, i)
	}
	if len(d.host.GPUs) == 0 {
		return fmt.Errorf("not one of the %d GPUs says which it is: see the log above, and nvidia-smi", got.Count)
	}
	for _, k := range d.host.GPUs {
		c := d.cards[k.UUID]
		if err := d.shape(ctx, c); err != nil { // it spoils nothing for the others
			if c.why = err.Error(); c.Model.Key == "" {
				plain := c.at
				plain.HasMIG = false
				c.Model, _, _ = modelOf(plain, nil) // whatever it is, it is not used
			}
			c.geo = gpu.NewGeometry(c.Model)
		}
	}
	return nil
}

// meet takes in the GPU of an index.
func (d *Driver) meet(ctx context.Context, index int) {
	got, err := d.lib.call(ctx, request{Op: opDescribe, Index: index})
	if err != nil {
		d.o.Log.Error("a GPU does not say which it is", "index", index, "err", err)
		return
	}
	g := *got.GPU
	c := d.cards[g.UUID]
	if c == nil {
		c = &card{known: known{UUID: g.UUID, Name: g.Name}}
		d.cards[g.UUID] = c
		d.host.GPUs = append(d.host.GPUs, c.known)
	}
	c.at, c.absent = g, false
}

// shape learns the geometry of a GPU from the driver.
func (d *Driver) shape(ctx context.Context, c *card) error {
	if c.absent {
		c.geo = gpu.NewGeometry(c.Model)
		return nil
	}
	var ps []profileInfo
	if c.at.HasMIG {
		got, err := d.lib.call(ctx, request{Op: opProfiles, GPU: c.UUID})
		if err != nil && !isFault(err, nvmlNotSupported, nvmlFunctionNotFound) {
			return explain("the MIG profiles of GPU "+c.UUID+" cannot be listed", err)
		}
		if err != nil {
			d.o.Log.Warn("a GPU is used without MIG", "gpu", c.UUID, "why", err)
		}
		ps = got.Profiles
	}
	m, settled, err := modelOf(c.at, ps)
	switch {
	case err != nil:
		c.why = "what the driver says of its MIG profiles makes no sense: " + err.Error()
		if m.Key == "" || c.Model.Key != "" {
			m = c.Model
		}
		m.Units, m.Slices, m.Profiles = 0, 0, nil
		settled = false
	case !settled && c.Settled && c.Model.Key == m.Key:
		m, settled = c.Model, true // it was, when MIG mode was on
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.cards {
		if other.UUID == c.UUID || other.geo == nil || other.why != "" || other.Model.Key != m.Key || err != nil || sameGeometry(other.Model, m) {
			continue
		}
		if !settled && other.Settled {
			m, settled = other.Model, true
		} else if settled && other.Settled {
			c.why = "its MIG geometry is another than that of GPU " + other.UUID + ", which has the same name and memory"
		}
	}
	if why := differs(m); settled && why != "" {
		d.o.Log.Warn("the driver's MIG geometry differs from the table; the driver's is used", "model", m.Key, "difference", why)
	}
	c.Model, c.Settled, c.geo = m, settled, gpu.NewGeometry(m)
	return nil
}

func sameGeometry(a, b gpu.Model) bool {
	return a.Units == b.Units && a.Slices == b.Slices && slices.EqualFunc(a.Profiles, b.Profiles, func(p, q gpu.Profile) bool {
		return p.Name == q.Name && p.ID == q.ID && p.Units == q.Units && p.Compute == q.Compute && p.Max == q.Max && p.MemoryMiB == q.MemoryMiB && slices.Equal(p.Starts, q.Starts)
	})
}

// claim decides which GPUs gpupool may use: those that it was given before, those that
// idle now with nothing on them, and those that it is told to adopt.
func (d *Driver) claim(ctx context.Context) error {
	for _, list := range [][]string{d.o.Adopt, d.o.Exclude} {
		for _, want := range list {
			if !slices.ContainsFunc(d.host.GPUs, func(k known) bool { return d.cards[k.UUID].is(want) }) {
				return fmt.Errorf("there is no GPU %q to adopt or exclude: give an index or a UUID as nvidia-smi -L shows them", want)
			}
		}
	}
	for _, k := range d.host.GPUs {
		c := d.cards[k.UUID]
		named := func(list []string) bool { return slices.ContainsFunc(list, c.is) }
		c.adopt = named(d.o.Adopt)
		switch {
		case named(d.o.Exclude):
			c.why = "it is excluded by the settings (--exclude)"
		case c.absent || c.why != "":
		case !c.Given || c.adopt:
			if err := d.take(ctx, c); err != nil {
				return err
			}
		}
	}
	d.name()
	return d.saveMachine()
}

// saveMachine keeps what was learned about the GPUs.
func (d *Driver) saveMachine() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	for i, k := range d.host.GPUs {
		d.host.GPUs[i] = d.cards[k.UUID].known
	}
	host := d.host
	host.GPUs = slices.Clone(host.GPUs)
	d.mu.Unlock()
	return putFile(filepath.Join(d.o.Dir, "machine.json"), host)
}

// is tells whether a word of the settings names the GPU.
func (c *card) is(word string) bool {
	n, err := strconv.Atoi(word)
	return err == nil && !c.absent && n == c.at.Index || strings.EqualFold(word, c.UUID)
}

// take makes a GPU gpupool's own if nothing is on it. An adopted one is emptied first,
// as far as it idles.
func (d *Driver) take(ctx context.Context, c *card) error {
	l, err := d.look(ctx, c)
	if err != nil {
		c.why = "it is new, and does not say whether it idles: " + err.Error()
		return nil //nolint:nilerr // the reason is kept: a GPU that ails spoils nothing for the others
	}
	foreign := d.foreign(c, l)
	if c.adopt {
		for _, g := range foreign {
			if len(g.Procs) == 0 {
				if err := d.destroy(ctx, c.UUID, g); err != nil {
					d.o.Log.Warn("an instance on an adopted GPU stays", "gpu", c.UUID, "instance", g.ID, "err", err)
				}
			}
		}
		c.Given = true
		return nil
	}
	switch {
	case len(l.Procs) > 0 && d.users(c.UUID) == 0:
		c.why = fmt.Sprintf("it was not given to gpupool: %d processes use it (%s)", len(l.Procs), pids(l.Procs))
	case len(foreign) > 0:
		c.why = fmt.Sprintf("it was not given to gpupool: it has %d MIG instances of someone else", len(foreign))
	default:
		c.Given = true
		return nil
	}
	c.why += "; restart gpupool once it idles, or name it with --adopt"
	return nil
}

// name says in the log what is used and what is not.
func (d *Driver) name() {
	for _, k := range d.host.GPUs {
		c := d.cards[k.UUID]
		switch {
		case c.absent:
			d.o.Log.Error("a GPU is not there any more", "gpu", k.UUID, "model", c.Model.Key)
		case c.why != "":
			d.o.Log.Warn("a GPU is left alone", "gpu", k.UUID, "index", c.at.Index, "model", c.Model.Key, "why", c.why)
		default:
			d.o.Log.Info("a GPU is in the pool", "gpu", k.UUID, "index", c.at.Index, "model", c.Model.Key)
		}
	}
}

func pids(ps []process) string {
	var out []string
	for _, p := range ps {
		if out = append(out, strconv.Itoa(p.PID)); len(out) == 8 {
			break
		}
	}
	return "pid " + strings.Join(out, ", ")
}

// enter checks what every call does.
func (d *Driver) enter(ctx context.Context, host string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return refuse(driver.ErrForbidden, "the driver was closed")
	case host != "" && host != d.host.Name:
		return refuse(driver.ErrNoDevice, "this driver speaks for host %s alone, not for %s", d.host.Name, host)
	}
	return nil
}

// Restarts counts how often the NVML helper had to be started again.
func (d *Driver) Restarts() int64 { return d.lib.restarts() }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	was := d.closed
	d.closed = true
	d.mu.Unlock()
	if !was {
		d.lib.close()
	}
	return nil
}

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	freeLeast = 64 << 20 // bytes below which the journal may fill the disk within hours
	freeGood  = 1 << 30
	syncSlow  = 20 * time.Millisecond // of one commit: 50 a second
)

// data: can the server keep its state?
func (e *exam) data() Result {
	dir := e.o.Data
	if dir == "" {
		return fail(Start, "there is no data folder: $HOME is not set").fix("export GPUPOOL_DATA=/var/lib/gpupool")
	}
	d, err := e.disked, e.diskErr
	switch {
	case d.Denied:
		return fail(Start, "the data folder %s cannot be written", dir).fix("sudo install -d -m 700 -o \"$(id -u)\" -g \"$(id -g)\" " + dir)
	case err != nil:
		return fail(Start, "the data folder %s cannot be used: %s", dir, err).fix("ls -ld " + dir)
	case d.Free > 0 && d.Free < freeLeast:
		return fail(Start, "the disk of the data folder %s is full: %s free", dir, bytes(d.Free)).fix("df -h " + dir)
	case d.Free > 0 && d.Free < freeGood:
		return warn("the disk of the data folder %s has %s free: journal and logs may fill it", dir, bytes(d.Free)).fix("df -h " + dir)
	case d.Open:
		return warn("other users can enter the data folder %s, where tokens and logs are", dir).fix("chmod 700 " + dir)
	case !d.Exists:
		return ok("the data folder %s does not exist yet and can be made: %s free", dir, bytes(d.Free))
	}
	return ok("the data folder %s can be written: %s free", dir, bytes(d.Free))
}

func bytes(n uint64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}

// disk: how long does a commit take, and will it be there after a crash?
func (e *exam) disk() Result {
	d := e.disked
	switch {
	case e.o.Data == "" || e.diskErr != nil || d.Denied:
		return skip("the data folder cannot be written")
	case slices.Contains([]string{"nfs", "smb", "fuse", "lustre", "ceph"}, d.Kind):
		return warn("the data folder is on %s: locks and fsync may not hold there, and the journal rests on both", d.Kind).fix("gpupool serve --data /var/lib/gpupool")
	case d.Kind == "tmpfs":
		return warn("the data folder is in main memory (tmpfs): all is forgotten at a reboot").fix("gpupool serve --data /var/lib/gpupool")
	case d.Sync == 0:
		return skip("the data folder does not exist yet: how fast its disk writes is seen once it does")
	case d.Sync > syncSlow:
		return warn("a commit to the disk takes %s: every call waits for one", d.Sync.Round(100*time.Microsecond)).fix("gpupool serve --data DIR    # on a local disk, best an SSD")
	}
	return ok("a commit to the disk takes less than %s", syncSlow)
}

// server: does the one that last used the data folder answer?
func (e *exam) server() Result {
	switch err := e.serverErr; {
	case err == nil:
		return ok("the server at %s answers", e.url)
	case errors.Is(err, errNoServer):
		return skip("%s", err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return skip("no server runs on the data folder now")
	default:
		return fail(Limits, "the server at %s does not answer: %s", e.url, oneLine(err.Error())).fix("systemctl status gpupool", "journalctl -u gpupool -n 50")
	}
}

// port: can the server take its address?
func (e *exam) port() Result {
	if e.o.Listen == "" {
		return skip("no address was given")
	}
	err := e.o.System.Listen(e.ctx, e.o.Listen)
	switch {
	case err == nil:
		return ok("%s is free for the API", e.o.Listen)
	case errors.Is(err, syscall.EADDRINUSE) && e.serverErr == nil:
		return ok("%s is in use, and a server of gpupool runs", e.o.Listen)
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := strings.Cut(e.o.Listen[strings.LastIndex(e.o.Listen, ":"):], ":")
		return fail(Start, "%s is in use by another program", e.o.Listen).fix("ss -ltnp 'sport = :"+port+"'", "gpupool serve --listen 127.0.0.1:0    # takes a free port")
	}
	return fail(Start, "%s cannot be taken: %s", e.o.Listen, oneLine(err.Error())).fix("gpupool serve --listen 127.0.0.1:8470")
}

// journal: can what was decided be read again?
func (e *exam) journal() Result {
	file := filepath.Join(e.o.Data, "journal.db")
	if e.serverErr == nil {
		return ok("the journal is written by the server, which stops when it cannot")
	}
	if e.o.Journal == nil || e.o.Data == "" {
		return skip("nobody here can read a journal")
	}
	err := e.o.Journal(e.ctx, file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skip("there is no journal yet")
	case err != nil:
		return fail(Start, "%s", oneLine(err.Error())).fix("cp -a " + e.o.Data + " " + e.o.Data + ".copy    # before anything is tried")
	}
	return ok("the journal %s is whole", file)
}

// redis: does the store of a pool with several servers answer, and can it lose what it said?
func (e *exam) redis() Result {
	if e.o.Redis == nil {
		return skip("no Redis is set: the journal is a file")
	}
	where, risks, err := e.o.Redis(e.ctx)
	if err != nil {
		return fail(Start, "%s", oneLine(err.Error())).fix("gpupool journal verify " + where)
	}
	if len(risks) > 0 {
		return warn("%s answers, and can lose acknowledged work: %s", where, strings.Join(risks, ". "))
	}
	return ok("%s answers, and keeps what it acknowledged", where)
}

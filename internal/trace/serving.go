package trace

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of an archive: a packed file may hold far more than it weighs.
const (
	maxUnpacked = 1 << 30 // bytes of one archive; the largest of these holds 10 MB
	maxEntries  = 10_000
	maxWindows  = 100_000 // of one client: two years
	maxSamples  = 20_000_000
)

// Files of a serving folder that Market reads.
const (
	popularityFile = "genai2026/lora_request_trace.csv"
	takesFile      = "genai2026/model_predict_data_anon.tar.gz"
	loadsFile      = "genai2026/basemodel_update_latency_anon.tar.gz"
	memoryFile     = "genai2026/pod_gpu_memory_used_bytes_anon.tar.gz"
	dutyFile       = "genai2026/pod_gpu_duty_cycle_anon.tar.gz"
	clientsFile    = "servegen/m-small-traces.tar.gz"
)

// limited fails, rather than ends, after so many bytes.
type limited struct {
	r    io.Reader
	left int64
}

var errTooLarge = errors.New("it unpacks to more than 1 GiB")

func (l *limited) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLarge
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// readTar calls f for each CSV file in a .tar.gz, and passes over what macOS adds.
func readTar(file string, r io.Reader, f func(name string, r io.Reader) error) error {
	broken := func(err error) error {
		return &Error{Path: file, Msg: "expected a tar archive packed by gzip: " + err.Error()}
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return broken(err)
	}
	t := tar.NewReader(&limited{z, maxUnpacked})
	for range maxEntries {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		base := path.Base(h.Name)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(base, "._") || !strings.HasSuffix(base, ".csv") {
			continue
		}
		if err := f(base, t); err != nil {
			return err
		}
	}
	return &Error{Path: file, Msg: fmt.Sprintf("expected at most %d files in the archive", maxEntries)}
}

// sample is one measured value of a container.
type sample struct {
	value     float64
	container string
}

// addSamples reads a file of genai2026 with the columns value and container_ip.
func addSamples(out []sample, file string, r io.Reader) ([]sample, error) {
	tab, err := newTable(file, r)
	if err != nil {
		return nil, err
	}
	if err := tab.need([]string{"value", "container_ip"}, "timestamp_anon"); err != nil {
		return nil, err
	}
	names := map[string]string{} // one copy of each name: a file has 144 in 160,000 rows
	err = tab.each(func() error {
		v, present, err := tab.number("value", 1e15)
		if err != nil || !present {
			return err
		}
		if len(out) == maxSamples {
			return tab.bad("expected at most %d rows", maxSamples)
		}
		name := tab.text("container_ip")
		if _, known := names[name]; !known {
			names[name] = name
		}
		out = append(out, sample{v, names[name]})
		return nil
	})
	return out, err
}

// readSamples reads an archive of such files.
func readSamples(file string) ([]sample, error) {
	var out []sample
	err := withTar(file, func(name string, r io.Reader) (err error) {
		out, err = addSamples(out, file+"/"+name, r)
		return err
	})
	if err == nil && len(out) == 0 {
		err = &Error{Path: file, Msg: "it holds no value: expected a CSV file with value,container_ip"}
	}
	return out, err
}

func withTar(file string, f func(name string, r io.Reader) error) error {
	r, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("the market cannot be read: %w; expected a folder with genai2026 and servegen, or no folder for a market that needs none", err)
	}
	defer r.Close()
	return readTar(file, r, f)
}

// positive returns the values above 0, times unit, in order.
func positive(samples []sample, unit float64) []float64 {
	var out []float64
	for _, s := range samples {
		if s.value > 0 {
			out = append(out, s.value*unit)
		}
	}
	slices.Sort(out)
	return out
}

// peaks returns each container's largest value.
func peaks(samples []sample) []sample {
	var out []sample
	index := map[string]int{}
	for _, s := range samples {
		i, known := index[s.container]
		if !known {
			i = len(out)
			index[s.container] = i
			out = append(out, s)
		}
		out[i].value = max(out[i].value, s.value)
	}
	return out
}

// addClient reads a file of ServeGen: rows without a header of a window's start (s),
// calls a second, CV of the gaps, family, and two parameters of the family. A window
// without calls has no family.
func addClient(file string, r io.Reader) (client, error) {
	var c client
	tab := newRows(file, r, "start", "rate", "cv", "family", "first", "second")
	err := tab.each(func() error {
		start, _, err := tab.number("start", maxSeconds)
		if err != nil {
			return err
		}
		if want := window.Seconds() * float64(len(c.rate)); start != want || len(c.rate) == maxWindows {
			return tab.bad("expected windows of %g s, the next at %g and at most %d of them, got one at %g", window.Seconds(), want, maxWindows, start)
		}
		rate, _, err := tab.number("rate", 1e6)
		if err != nil {
			return err
		}
		cv, _, err := tab.number("cv", 1e6)
		if err != nil {
			return err
		}
		if cv == 0 || tab.text("family") == "" {
			cv = 1 // too few calls for one to be measured
		}
		c.rate, c.cv = append(c.rate, rate), append(c.cv, min(max(cv, minCV), maxCV))
		return nil
	})
	return c, err
}

// readClients reads the clients that have calls, the one with most first.
func readClients(file string) ([]client, error) {
	var out []client
	err := withTar(file, func(name string, r io.Reader) error {
		c, err := addClient(file+"/"+name, r)
		if err == nil && len(c.rate) > 0 && c.mean() > 0 {
			out = append(out, c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &Error{Path: file, Msg: "it holds no client with calls: expected chunk-N-trace.csv of start,rate,cv,family,…"}
	}
	byRate(out)
	return out, nil
}

// readPopularity counts the requests of each base model, the most popular first.
func readPopularity(file string, r io.Reader) ([]float64, error) {
	tab, err := newTable(file, r)
	if err != nil {
		return nil, err
	}
	if _, ok := tab.columns["checkpoint_model_version_id"]; !ok {
		return nil, &Error{file, 1, "column checkpoint_model_version_id is missing: expected genai2026's lora_request_trace.csv"}
	}
	index := map[string]int{}
	var counts []float64
	err = tab.each(func() error {
		name := tab.text("checkpoint_model_version_id")
		if name == "" {
			return nil
		}
		i, known := index[name]
		if !known {
			i = len(counts)
			index[name], counts = i, append(counts, 0)
		}
		counts[i]++
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(counts) == 0 {
		return nil, &Error{Path: file, Msg: "it names no base model"}
	}
	slices.SortFunc(counts, func(a, b float64) int { return int(b - a) })
	return counts, nil
}

// readServing reads what a market is made of from a serving folder.
func readServing(dir string) (*serving, error) {
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	f, err := openFile(at(popularityFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &serving{}
	if s.counts, err = readPopularity(at(popularityFile), f); err != nil {
		return nil, err
	}
	s.zipf = fitZipf(s.counts)
	if s.clients, err = readClients(at(clientsFile)); err != nil {
		return nil, err
	}
	values := func(name string, unit float64, pick func([]sample) []sample) []float64 {
		var samples []sample
		if err == nil {
			samples, err = readSamples(at(name))
		}
		if pick != nil {
			samples = pick(samples)
		}
		out := positive(samples, unit)
		if err == nil && len(out) == 0 {
			err = &Error{Path: at(name), Msg: "it holds no value above 0"}
		}
		return out
	}
	takes, loads, memory := values(takesFile, 1e-3, nil), values(loadsFile, 1e-3, nil), values(memoryFile, 1.0/(1<<20), peaks)
	if err != nil {
		return nil, err
	}
	duty, err := readSamples(at(dutyFile))
	if err != nil {
		return nil, err
	}
	for _, d := range duty {
		s.duty += d.value / 100 / float64(len(duty))
	}
	s.takes, s.takesMean, s.loads, s.memory = oneOf(takes), mean(takes), oneOf(loads), oneOf(memory)
	return s, nil
}

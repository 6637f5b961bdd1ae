package trace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pack makes a .tar.gz of name, text, name, text, …
func pack(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const samplesHead = "timestamp_anon,value,container_ip\n"

// tiny writes a serving folder of a few rows.
func tiny(t testing.TB, change map[string][]byte) string {
	t.Helper()
	var steady, rare strings.Builder
	for i := range 288 {
		fmt.Fprintf(&steady, "%d,3.5,1.5,Gamma,0.4,0.6\n", i*600)
		fmt.Fprintf(&rare, "%d,%s\n", i*600, map[bool]string{true: "0.1,0.0001,Weibull,1,1", false: "0,0,,0,0"}[i == 200])
	}
	files := map[string][]byte{
		popularityFile: []byte("gmt_create,checkpoint_model_version_id\na,M1\nb,M0\nc,M0\nd,\ne,M0\nf,M2\ng,M1\n"),
		takesFile:      pack(t, "._a.csv", "\x00\x05\x16\x07", "a.csv", samplesHead+"1,2000,x\n2,4000.0,y\n", "read.me", "no"),
		loadsFile:      pack(t, "a.csv", "value,timestamp_anon,container_ip\n7000,1,NULL\n"),
		memoryFile:     pack(t, "a.csv", samplesHead+"1,1048576,x\n2,3145728,x\n3,2097152,y\n4,0,z\n"),
		dutyFile:       pack(t, "a.csv", samplesHead+"1,0,x\n2,10,x\n"),
		clientsFile:    pack(t, "data/chunk-0-trace.csv", rare.String(), "data/._chunk-1-trace.csv", "x", "data/chunk-1-trace.csv", steady.String(), "data/chunk-2-trace.csv", "0,0,0,,0,0\n"),
	}
	dir := filepath.Join(t.TempDir(), "serving")
	for _, sub := range []string{"genai2026", "servegen"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range files {
		if other, changed := change[name]; changed {
			b = other
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestServing(t *testing.T) {
	dir := tiny(t, nil)
	s, err := readServing(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.counts, []float64{3, 2, 1}) || s.takesMean != 3 || s.loads(fixed()) != 7 || s.duty != 0.05 {
		t.Errorf("got %v, takes %g s in the mean, loads in %g, duty %g", s.counts, s.takesMean, s.loads(fixed()), s.duty)
	}
	if len(s.clients) != 2 || s.clients[0].rate[0] != 3.5 || s.clients[0].cv[0] != 1.5 || s.clients[1].cv[200] != minCV || s.clients[1].cv[0] != 1 {
		t.Errorf("clients: %+v", s.clients)
	}
	rng := fixed()
	for range 20 {
		if m := s.memory(rng); m != 3 && m != 2 {
			t.Fatalf("memory: got %g MiB, want a container's most, 3 or 2", m)
		}
	}
	for _, o := range []MarketOptions{{Models: 3}, {Models: 2, Seed: 3}, {Models: 9, Length: 25 * time.Hour}} {
		x, err := Market(dir, o)
		for _, task := range mustDraw(t, x, err).Tasks {
			if task.Load != 7*time.Second || task.UsedMiB < 2 || task.UsedMiB > 3 {
				t.Fatalf("%+v: %+v", o, task)
			}
		}
		if d := duty(x); d < 0.04 || d > 0.06 {
			t.Errorf("%+v: mean duty %g, measured is 0.05", o, d)
		}
		if strings.Contains(x.Synthetic, "Zipf") != (o.Models > 3) {
			t.Errorf("%+v: %s", o, x.Synthetic)
		}
	}
}

func TestServingRefused(t *testing.T) {
	many := make([]string, 0, 2*maxEntries+2)
	for range maxEntries + 1 {
		many = append(many, "x", "")
	}
	for _, x := range []struct {
		file string
		with []byte
		want string
	}{
		{popularityFile, []byte("a,b\n1,2\n"), "checkpoint_model_version_id is missing"},
		{popularityFile, []byte("checkpoint_model_version_id\n\"\"\n"), "names no base model"},
		{takesFile, []byte("plain"), "packed by gzip"},
		{takesFile, pack(t), "holds no value"},
		{takesFile, pack(t, "a.csv", samplesHead+"1,-2,x\n"), `got "-2"`},
		{takesFile, pack(t, "a.csv", samplesHead+"1,0,x\n"), "no value above 0"},
		{loadsFile, pack(t, "a.csv", "value\n1\n"), `column "container_ip" is missing`},
		{loadsFile, pack(t, many...), "at most 10000 files"},
		{dutyFile, pack(t, "a.csv", samplesHead+"1,2,x\n")[:60], "tar archive"},
		{dutyFile, pack(t, "a.csv", samplesHead+"1,90,x\n"), "raise MaxDuty"},
		{clientsFile, pack(t, "a.csv", "0,0,0,,0,0\n"), "no client with calls"},
		{clientsFile, pack(t, "a.csv", "0,1,1,Gamma,0,0\n60,1,1,Gamma,0,0\n"), "the next at 600"},
		{clientsFile, pack(t, "a.csv", "0,NaN,1,Gamma,0,0\n"), `got "NaN"`},
		{clientsFile, pack(t, "a.csv", "0,1\n"), "expected 6 fields"},
	} {
		_, err := Market(tiny(t, map[string][]byte{x.file: x.with}), MarketOptions{Models: 3})
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want %q", x.file, err, x.want)
		}
	}
	if _, err := io.ReadAll(&limited{strings.NewReader("abc"), 2}); !errors.Is(err, errTooLarge) {
		t.Errorf("three bytes where two may come: %v", err)
	}
}

func FuzzTar(f *testing.F) {
	f.Add(pack(f, "a.csv", samplesHead+"1,2,x\n"))
	f.Add(pack(f, "._a.csv", "x", "d/b.csv", "value,container_ip\n1e300,x\n"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		var got []sample
		err := readTar("f.tar.gz", bytes.NewReader(packed), func(name string, r io.Reader) (err error) {
			if strings.HasPrefix(name, "._") || strings.Contains(name, "/") {
				t.Fatalf("%q was let through", name)
			}
			got, err = addSamples(got, name, r)
			return err
		})
		for _, s := range got {
			if err == nil && !(s.value >= 0 && s.value <= 1e15) {
				t.Fatalf("%+v was let through", s)
			}
		}
	})
}

func FuzzClient(f *testing.F) {
	f.Add("0,1,1.5,Gamma,0,0\n600,0,0,,0,0\n")
	f.Add("0,1e-300,1e6,Weibull,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := addClient("f.csv", strings.NewReader(text))
		if err != nil || len(c.rate) == 0 || c.mean() == 0 {
			return
		}
		w := c.anyDay(fixed(), 3*time.Hour)
		at := w.arrivals(fixed(), 50, 3*time.Hour)
		if len(at) != 50 || !slices.IsSorted(at) || at[0] < 0 || at[49] >= 3*time.Hour {
			t.Fatalf("%+v gives %v", w, at)
		}
	})
}

func FuzzPopularity(f *testing.F) {
	f.Add("checkpoint_model_version_id\nM0\nM1\nM0\n")
	f.Fuzz(func(t *testing.T, text string) {
		counts, err := readPopularity("f.csv", strings.NewReader(text))
		if err != nil {
			return
		}
		if len(counts) == 0 || counts[len(counts)-1] < 1 || counts[0] < counts[len(counts)-1] {
			t.Fatalf("%v was let through", counts)
		}
		if s := fitZipf(counts); !(s >= 0 && s <= 10) {
			t.Fatalf("%v fits an exponent of %g", counts, s)
		}
	})
}

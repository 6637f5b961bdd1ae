package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpupool/gpupool/internal/api/client"
	"github.com/gpupool/gpupool/internal/cli"
	"github.com/gpupool/gpupool/internal/config"
	"github.com/gpupool/gpupool/internal/doctor"
	"github.com/gpupool/gpupool/internal/driver/nvidia"
	"github.com/gpupool/gpupool/internal/journal/bolt"
	"github.com/gpupool/gpupool/internal/journal/redis"
)

// examine lets doctor look at this machine and at the pool that o describes.
func examine(ctx context.Context, o cli.DoctorOptions) (doctor.Report, error) {
	data := o.Config.Server.Data
	return doctor.Examine(ctx, doctor.Options{
		System: doctor.Machine(), Hardware: hardwareOf(o.Config.NVIDIA), Data: data, Listen: o.Config.Server.Listen,
		Server: askServer(o.Server, data, o.TLS), Journal: readJournal, Redis: askRedis(o.Config.Journal),
	}), nil
}

// hardwareOf returns who asks NVML, as the server's helper would.
func hardwareOf(c config.NVIDIA) func(context.Context) (doctor.Hardware, error) {
	return func(ctx context.Context) (h doctor.Hardware, err error) {
		if !nvidia.Built {
			return h, doctor.ErrNoNVML
		}
		exe, err := os.Executable()
		if err != nil {
			return h, err
		}
		p, err := nvidia.Probe(ctx, nvidia.Options{Helper: []string{exe, nvmlCommand, c.Library}, Timeout: time.Duration(c.Timeout), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return h, err
		}
		h = doctor.Hardware{Driver: p.Driver, Source: "NVML"}
		for _, g := range p.GPUs {
			h.GPUs = append(h.GPUs, doctor.GPU{Index: g.Index, Minor: g.Minor, Name: g.Name, UUID: g.UUID, MemoryMiB: g.MemoryMiB,
				MIG: migWord(g.HasMIG, g.MIG), MIGPending: migWord(g.HasMIG, g.MIGPending), Instances: g.Instances, Recovery: g.Recovery})
		}
		return h, nil
	}
}

func migWord(has, on bool) string {
	switch {
	case !has:
		return "none"
	case on:
		return "on"
	}
	return "off"
}

// askServer returns who asks the server at url, else the one that used the data folder
// last; nil where none did.
func askServer(url, data string, trust client.TLS) func(context.Context) (string, error) {
	if url == "" {
		url = os.Getenv("GPUPOOL_SERVER")
	}
	if url == "" {
		var info cli.ServerInfo
		b, err := os.ReadFile(filepath.Join(data, cli.ServerFile))
		if err != nil || json.Unmarshal(b, &info) != nil || info.URL == "" {
			return nil
		}
		url = info.URL
		if trust.CA == "" {
			trust.CA, trust.Name = info.CA, info.Name
		}
	}
	return func(ctx context.Context) (string, error) {
		config, err := trust.Config()
		if err != nil {
			return url, err
		}
		asks := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true}}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/healthz", nil) //nolint:gosec // the address is the caller's own
		if err != nil {
			return url, err
		}
		resp, err := asks.Do(req) //nolint:gosec // as above
		if err != nil {
			return url, err
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(io.LimitReader(resp.Body, 64))
		switch {
		case err != nil:
			return url, err
		case resp.StatusCode != http.StatusOK || strings.TrimSpace(string(said)) != "ok":
			return url, fmt.Errorf("expected ok, got %s: is it gpupool?", resp.Status)
		}
		return url, nil
	}
}

// askRedis returns who asks the store that several servers share; nil where there is none.
func askRedis(c config.Journal) func(context.Context) (string, []string, error) {
	if !c.Shared() {
		return nil
	}
	return func(ctx context.Context) (where string, risks []string, err error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		where = redis.Shown(c.URL)
		j, err := redis.Open(ctx, redisOptions(c))
		if err != nil {
			return where, nil, err
		}
		defer j.Close()
		risks, err = j.Risks(ctx)
		return where, risks, err
	}
}

// readJournal reads a whole journal, as a start would, and changes nothing.
func readJournal(ctx context.Context, path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	j, err := bolt.Open(path, bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer j.Close()
	look := func(uint64, []byte) error { return nil }
	return j.Load(ctx, look, look)
}

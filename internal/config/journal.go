package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Journal is where the state is kept.
type Journal struct {
	URL              string   `yaml:"url" default:"" doc:"Redis or Valkey that several servers share: redis://HOST:PORT, rediss:// with TLS, redis+sentinel://HOST:PORT,HOST:PORT/PRIMARY or redis+cluster://HOST:PORT. Empty: the file journal.db in the data folder, for one server."`
	PasswordFile     string   `yaml:"password_file" default:"" doc:"File with the password of the user that the address names. A file, as it is a secret."`
	SentinelPassword string   `yaml:"sentinel_password_file" default:"" doc:"The same for the sentinels. Empty: they ask for none."`
	MinReplicas      int      `yaml:"min_replicas" default:"0" doc:"Replicas that must have a fact before anyone is told of it: 1 or more, and a failover of Redis loses nothing. More than there are, and nothing can be stored."`
	WaitFor          string   `yaml:"wait_for" default:"memory" enum:"memory,disk" doc:"disk: and on the disk, here and at the replicas (Redis 7.2 or Valkey). memory: as Redis is set (appendfsync)."`
	Lease            Duration `yaml:"lease" default:"3s" doc:"How long a server that says nothing leads; then another does. Shorter finds a dead one sooner, and takes a slow one for dead."`
	Advertise        string   `yaml:"advertise" default:"" doc:"Address at which the other servers reach this one, such as http://10.0.0.5:8470. Empty: the one that it listens on."`
}

// Shared reports whether several servers share the journal.
func (j Journal) Shared() bool { return j.URL != "" }

func (j Journal) check() error {
	known := []string{"redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://", "unix://"}
	if j.URL != "" && !slices.ContainsFunc(known, func(p string) bool { return strings.HasPrefix(j.URL, p) }) {
		return errors.New("journal.url: expected an address such as redis://127.0.0.1:6379, or nothing for the file in the data folder") // it may hold a secret: not shown
	}
	if !slices.Contains([]string{"memory", "disk"}, j.WaitFor) {
		return fmt.Errorf("journal.wait_for: expected memory or disk, got %q", j.WaitFor)
	}
	if j.Advertise != "" && !strings.HasPrefix(j.Advertise, "http://") && !strings.HasPrefix(j.Advertise, "https://") {
		return fmt.Errorf("journal.advertise: expected an address such as http://10.0.0.5:8470, got %q", j.Advertise)
	}
	return nil
}

func (j Journal) ranges() []inRange {
	return []inRange{
		{"journal.min_replicas", 0, 16, float64(j.MinReplicas)},
		{"journal.lease (seconds)", 0.2, 60, time.Duration(j.Lease).Seconds()},
	}
}

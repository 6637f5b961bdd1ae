package redis

import (
	"context"
	"fmt"
	"strings"
)

// Risks says in sentences how what was acknowledged could be lost by the way the store is
// set up. Where it may not look, it says so, and what to check.
func (j *Journal) Risks(ctx context.Context) ([]string, error) {
	if err := j.enter(ctx); err != nil {
		return nil, err
	}
	bound, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := j.node(bound)
	if err != nil {
		return nil, j.translate("look at", err)
	}
	set := map[string]string{}
	for _, name := range []string{"appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy"} {
		got, err := node.ConfigGet(bound, name).Result()
		if err != nil {
			if passes(err) {
				return nil, j.translate("look at", err)
			}
			return j.risksByInfo(bound)
		}
		set[name] = got[name]
	}
	replicas := -1
	if info, err := node.Info(bound, "replication").Result(); err == nil {
		fmt.Sscan(infoField(info, "connected_slaves"), &replicas) //nolint:errcheck // stays unknown
	}
	return j.risks(set, replicas), nil
}

// risks judges settings; replicas is -1 when not known.
func (j *Journal) risks(set map[string]string, replicas int) (out []string) {
	replicated := j.o.MinReplicas > 0
	switch {
	case set["appendonly"] != "yes" && set["save"] == "":
		out = append(out, "Redis keeps nothing on disk (appendonly no, save \"\"): a restart of it loses everything. Set appendonly yes and appendfsync always")
	case set["appendonly"] != "yes":
		out = append(out, fmt.Sprintf("Redis writes its disk only now and then (appendonly no, save %q): a crash of it loses up to minutes of acknowledged work. Set appendonly yes and appendfsync always", set["save"]))
	case set["appendfsync"] == "everysec" && !j.o.Fsync:
		out = append(out, "a crash of the machine of Redis loses up to a second or two of acknowledged work (appendfsync everysec). Set appendfsync always, or journal.min_replicas")
	case set["appendfsync"] == "no" && !j.o.Fsync:
		out = append(out, "a crash of the machine of Redis loses what its system had not written yet, up to half a minute (appendfsync no). Set appendfsync always")
	}
	if !replicated && replicas != 0 {
		out = append(out, "a failover to a replica loses what the replica did not have yet; a server that still runs puts it back, and otherwise nobody leads. Set journal.min_replicas to 1 or more")
	}
	if replicated && replicas >= 0 && replicas < j.o.MinReplicas {
		out = append(out, fmt.Sprintf("journal.min_replicas is %d and Redis has %d replicas now: nothing can be stored until there are more", j.o.MinReplicas, replicas))
	}
	if p := set["maxmemory-policy"]; strings.HasPrefix(p, "allkeys") && set["maxmemory"] != "0" {
		out = append(out, fmt.Sprintf("Redis throws keys away when its memory is full (maxmemory-policy %s): it would throw away the journal. Set noeviction", p))
	}
	return out
}

// risksByInfo is for those who may not see the settings.
func (j *Journal) risksByInfo(ctx context.Context) ([]string, error) {
	out := []string{"this user may not read Redis' settings (CONFIG GET), so check them yourself: appendonly yes, appendfsync always, maxmemory-policy noeviction"}
	node, err := j.node(ctx)
	if err != nil {
		return nil, j.translate("look at", err)
	}
	info, err := node.Info(ctx, "persistence").Result()
	if err == nil && infoField(info, "aof_enabled") == "0" {
		out = append(out, "Redis writes its disk only now and then, if at all (aof_enabled:0): a crash of it loses acknowledged work. Set appendonly yes and appendfsync always")
	}
	return out, nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

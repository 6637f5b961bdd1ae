package redis

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gpupool/gpupool/internal/journal"
)

const (
	partBytes   = 1 << 20 // of a part of a snapshot
	pageRecords = 500     // records fetched at once
	pageParts   = 8
	leftovers   = 10 * time.Minute // until parts that nobody counts are gone by themselves
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot implements journal.Journal.
func (j *Journal) Snapshot(ctx context.Context, seq uint64, state []byte) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	t, err := j.leading(ctx)
	if err != nil {
		return err
	}
	m, err := j.meta(ctx)
	if err != nil {
		return j.translate("write to", err)
	}
	key, parts, err := j.storeParts(ctx, t, state)
	if err != nil {
		return err
	}
	old := m.snapKey
	if old == "" {
		old = key
	}
	said, err := j.run(ctx, t, func(ctx context.Context) ([]string, error) {
		node, err := j.node(ctx)
		if err != nil {
			return nil, err
		}
		return words(swap.Eval(ctx, node, []string{j.keys.meta, j.keys.facts, key, old}, t.holder, number(seq), parts, sum(state)))
	})
	switch {
	case err != nil:
		return err
	case said[0] == "sequence":
		return &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a snapshot at record %d does not fit journal %s with records %s to %s", seq, j.name, said[1], said[2])}
	case said[0] != "ok":
		return &journal.Error{Code: journal.ErrFailed, Msg: fmt.Sprintf("the snapshot at record %d was not taken by journal %s (%s): the older one is still there", seq, j.name, strings.Join(said, " "))}
	}
	return nil
}

// storeParts stores a state that does not count yet.
func (j *Journal) storeParts(ctx context.Context, t *term, state []byte) (key string, parts int, err error) {
	t.snaps++
	key = fmt.Sprintf("%s%s-%d", j.keys.snap, t.holder, t.snaps)
	for part := range slices.Chunk(state, partBytes) {
		_, err := j.run(ctx, t, func(ctx context.Context) ([]string, error) {
			node, err := j.node(ctx)
			if err != nil {
				return nil, err
			}
			return words(stash.Eval(ctx, node, []string{j.keys.meta, key}, t.holder, parts, part, int(leftovers.Seconds())))
		})
		if err != nil {
			j.drop(key)
			return "", 0, err
		}
		parts++
	}
	return key, parts, nil
}

// drop makes room at once where parts did not all fit; else they go by themselves. Nothing can
// count them yet: that is the next step of whoever stores them.
func (j *Journal) drop(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	node, err := j.node(ctx)
	if err == nil {
		err = node.Del(ctx, key).Err()
	}
	if err != nil {
		j.o.Log.Debug("parts of a snapshot are left to go by themselves", "err", err)
	}
}

// Restore implements journal.Restorer. This server must lead.
func (j *Journal) Restore(ctx context.Context, seq uint64, state []byte) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	t, err := j.leading(ctx)
	if err != nil {
		return err
	}
	key, parts, err := j.storeParts(ctx, t, state)
	if err != nil {
		return err
	}
	at := place{seq, chain("").next(state)}
	said, err := j.run(ctx, t, func(ctx context.Context) ([]string, error) {
		node, err := j.node(ctx)
		if err != nil {
			return nil, err
		}
		return words(plant.Eval(ctx, node, []string{j.keys.meta, key}, t.holder, number(seq), parts, sum(state), string(at.chain)))
	})
	if err == nil && said[0] == "sequence" {
		err = &journal.Error{Code: journal.ErrSequence, Msg: fmt.Sprintf("a copy can only be put into an empty journal, and %s has records up to %s", j.name, said[1])}
	}
	if err != nil {
		return err
	}
	t.at = at
	return nil
}

func sum(b []byte) string { return strconv.FormatUint(uint64(crc32.Checksum(b, castagnoli)), 16) }

// metaOf is what the store says of itself.
type metaOf struct {
	version, site     string
	snapKey, snapSum  string
	last, snap, acked uint64
	chain, snapChain  chain
	snapParts         int
}

func (j *Journal) meta(ctx context.Context) (m metaOf, err error) {
	node, err := j.node(ctx)
	if err != nil {
		return m, err
	}
	h, err := node.HGetAll(ctx, j.keys.meta).Result()
	if err != nil {
		return m, err
	}
	m = metaOf{version: h["version"], site: h["site"], snapKey: h["snap_key"], snapSum: h["snap_sum"], chain: chain(h["chain"]), snapChain: chain(h["snap_chain"])}
	if m.version == "" {
		return m, nil // nobody has written yet
	}
	if m.version != formatVersion {
		return m, j.newer(m.version)
	}
	for _, x := range []struct {
		name string
		into *uint64
	}{{"last", &m.last}, {"snap", &m.snap}, {"acked", &m.acked}} {
		if s := h[x.name]; s != "" {
			if *x.into, err = strconv.ParseUint(s, 10, 64); err != nil {
				return m, j.corrupt(fmt.Sprintf("its %s is %q, which is no number", x.name, s))
			}
		}
	}
	if s := h["snap_parts"]; s != "" {
		if m.snapParts, err = strconv.Atoi(s); err != nil {
			return m, j.corrupt("the number of parts of its snapshot is damaged")
		}
	}
	return m, nil
}

func (j *Journal) newer(version string) error {
	return &journal.Error{Code: journal.ErrVersion, Msg: fmt.Sprintf("journal %s has format %s and this gpupool reads %s: start the version that wrote it, or a newer one", j.name, version, formatVersion)}
}

// Load implements journal.Journal.
func (j *Journal) Load(ctx context.Context, snapshot, record func(uint64, []byte) error) error {
	if err := j.enter(ctx); err != nil {
		return err
	}
	m, err := j.meta(ctx)
	if err != nil {
		return j.translate("read", err)
	}
	at := place{m.snap, m.snapChain}
	if m.snapKey != "" {
		state, err := j.snapshot(ctx, m)
		if err != nil {
			return err
		}
		if err := snapshot(m.snap, state); err != nil {
			return err
		}
	}
	j.saw(at, nil, true)
	for at.seq < m.last {
		page, err := j.page(ctx, at, "+", pageRecords)
		if err != nil {
			return j.translate("read", err)
		}
		if len(page) == 0 {
			return j.corrupt(fmt.Sprintf("it ends at record %d, and %d was written", at.seq, m.last))
		}
		for _, e := range page {
			if e.seq > m.last {
				return nil // came while this was read
			}
			if e.seq != at.seq+1 {
				return j.corrupt(fmt.Sprintf("record %d is missing", at.seq+1))
			}
			if e.chain != at.chain.next(e.data) {
				return j.corrupt(fmt.Sprintf("record %d does not match its checksum, or not the records before it", e.seq))
			}
			if err := record(e.seq, e.data); err != nil {
				return err
			}
			at = e.place
			j.saw(at, e.data, false)
		}
	}
	if at.chain != m.chain {
		return j.corrupt(fmt.Sprintf("its last record, %d, is not the one that it says it ends with", at.seq))
	}
	return nil
}

// snapshot fetches the newest snapshot whole, and checks it.
func (j *Journal) snapshot(ctx context.Context, m metaOf) ([]byte, error) {
	node, err := j.node(ctx)
	if err != nil {
		return nil, j.translate("read", err)
	}
	var state []byte
	for at := 0; at < m.snapParts; at += pageParts {
		var names []string
		for n := at; n < min(at+pageParts, m.snapParts); n++ {
			names = append(names, strconv.Itoa(n))
		}
		parts, err := node.HMGet(ctx, m.snapKey, names...).Result()
		if err != nil {
			return nil, j.translate("read", err)
		}
		for _, p := range parts {
			text, _ := p.(string) // one that is gone is found by the checksum
			state = append(state, text...)
		}
	}
	if sum(state) != m.snapSum {
		return nil, j.corrupt(fmt.Sprintf("the snapshot at record %d does not match its checksum", m.snap))
	}
	return state, nil
}

// entry is a record as it is stored.
type entry struct {
	place
	data []byte
}

// page fetches the records after a place, up to and including the id to.
func (j *Journal) page(ctx context.Context, after place, to string, most int64) ([]entry, error) {
	node, err := j.node(ctx)
	if err != nil {
		return nil, err
	}
	msgs, err := node.XRangeN(ctx, j.keys.facts, idOf(after.seq+1), to, most).Result()
	if err != nil {
		return nil, err
	}
	return j.entries(msgs)
}

func idOf(seq uint64) string { return number(seq) + "-0" }

func (j *Journal) entries(msgs []redis.XMessage) ([]entry, error) {
	out := make([]entry, 0, len(msgs))
	for _, m := range msgs {
		text, ok := strings.CutSuffix(m.ID, "-0")
		seq, err := strconv.ParseUint(text, 10, 64)
		data, hasData := m.Values["d"].(string)
		c, hasChain := m.Values["c"].(string)
		if !ok || err != nil || !hasData || !hasChain {
			return nil, j.corrupt(fmt.Sprintf("entry %s of its stream is not a record", m.ID))
		}
		out = append(out, entry{place{seq, chain(c)}, []byte(data)})
	}
	return out, nil
}

// saw notes a record that was read, or where reading began.
func (j *Journal) saw(at place, data []byte, begin bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case begin:
		if c, known := j.seen.at(at.seq); !known || c != at.chain {
			j.seen.reset(at)
		}
	case at.seq == j.seen.end().seq+1:
		j.seen.push(at.chain, data)
	default:
		if c, known := j.seen.at(at.seq); !known || c != at.chain {
			j.seen.reset(at)
		}
	}
}

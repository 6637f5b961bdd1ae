package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// bbolt maps the file into memory and follows what its pages say, unchecked. A damaged
// page may lead it out of the map, round in circles until the stack overflows (which no
// recover catches), or to hand out a page in use as a free one. So every page in use is
// read and judged here before bbolt sees any. The layouts are those of bbolt's file
// format 2, in the byte order of the machine.
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaAt      = 16 // after the header that every page has
	metaSum     = metaAt + 56
	metaEnd     = metaAt + 64

	pageHeader = 16 // page number, kind, count of elements, count of further pages
	element    = 16 // of a branch: where, key size, page; of a leaf: flags, where, key size, value size

	kindBranch, kindLeaf, kindFree = 0x01, 0x02, 0x10

	minPageSize, maxPageSize = 1 << 10, 1 << 16
	maxDepth                 = 64 // of a tree; a branch has dozens of children, so a real one has less than 10
)

// meta is what one of the two meta pages says.
type meta struct {
	pageSize              int
	root, free, pages, tx uint64
}

// pageFile judges the pages of a file.
type pageFile struct {
	meta
	f    io.ReaderAt
	used []bool // pages that something refers to
}

// checkPages refuses a file in which bbolt could go astray. Nobody may write meanwhile.
func checkPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return translate(path, "open", err)
	}
	defer f.Close()
	m, err := readMeta(f)
	if err != nil {
		return translate(path, "read", err)
	}
	if m.pageSize == 0 {
		return corrupt(path, "neither of its two meta pages is whole", nil)
	}
	info, err := f.Stat()
	if err != nil {
		return translate(path, "read", err)
	}
	if have := uint64(info.Size()); have/uint64(m.pageSize) < m.pages {
		return corrupt(path, fmt.Sprintf("it has %d bytes, and %d pages of %d bytes were written: its end was cut off", have, m.pages, m.pageSize), nil)
	}
	p := pageFile{meta: m, f: f, used: make([]bool, m.pages)}
	if err := p.tree(m.root, p.bucket, nil, nil, 0); err != nil {
		return corrupt(path, err.Error(), err)
	}
	if err := p.freelist(); err != nil {
		return corrupt(path, err.Error(), err)
	}
	return nil
}

// readMeta returns the newest whole meta page, as bbolt picks it; its page size is 0 if
// there is none. The second stands one page in; if the first is damaged, how far that is
// has to be tried.
func readMeta(f io.ReaderAt) (m meta, err error) {
	head := make([]byte, maxPageSize+metaEnd)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return meta{}, err
	}
	head = head[:n]
	first, ok := parseMeta(head, 0)
	if ok {
		if second, ok := parseMeta(head, first.pageSize); ok && second.tx > first.tx && second.pageSize == first.pageSize {
			return second, nil
		}
		return first, nil
	}
	for at := minPageSize; at <= maxPageSize; at *= 2 {
		if second, ok := parseMeta(head, at); ok && second.pageSize == at {
			return second, nil
		}
	}
	return meta{}, nil
}

func parseMeta(head []byte, at int) (m meta, ok bool) {
	if at+metaEnd > len(head) {
		return m, false
	}
	b := head[at+metaAt : at+metaEnd]
	h := fnv.New64a()
	h.Write(b[:metaSum-metaAt])
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	if u32(b) != metaMagic || u32(b[4:]) != metaVersion || u64(b[metaSum-metaAt:]) != h.Sum64() {
		return m, false
	}
	m = meta{pageSize: int(u32(b[8:])), root: u64(b[16:]), free: u64(b[32:]), pages: u64(b[40:]), tx: u64(b[48:])}
	return m, m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}

// read returns page id with the pages that continue it, and takes them as used.
func (p *pageFile) read(id uint64) ([]byte, error) {
	if id < 2 || id >= p.pages {
		return nil, fmt.Errorf("it refers to page %d of %d", id, p.pages)
	}
	var head [pageHeader]byte
	at := int64(id) * int64(p.pageSize)
	if _, err := p.f.ReadAt(head[:], at); err != nil {
		return nil, fmt.Errorf("page %d cannot be read: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(head[12:]))
	if says := binary.NativeEndian.Uint64(head[:]); says != id || more >= p.pages-id {
		return nil, fmt.Errorf("page %d says it is page %d and %d more, of %d", id, says, more, p.pages)
	}
	for i := id; i <= id+more; i++ {
		if err := p.use(i); err != nil {
			return nil, err
		}
	}
	b := make([]byte, (1+more)*uint64(p.pageSize))
	if _, err := p.f.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("page %d cannot be read: %w", id, err)
	}
	return b, nil
}

func (p *pageFile) use(id uint64) error {
	if id < 2 || id >= p.pages || p.used[id] {
		return fmt.Errorf("page %d is used twice, or is none of its %d pages", id, p.pages)
	}
	p.used[id] = true
	return nil
}

// tree judges the tree under page id, whose keys lie from low to before high (nil: no
// bound), and hands each leaf element to judge.
func (p *pageFile) tree(id uint64, judge judge, low, high []byte, depth int) error {
	b, err := p.read(id)
	if err != nil {
		return err
	}
	kind, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind == kindLeaf {
		return leaf(b, fmt.Sprintf("page %d", id), judge, low, high)
	}
	if kind != kindBranch || count == 0 || depth > maxDepth || pageHeader+count*element > len(b) {
		return fmt.Errorf("page %d (kind %#x, %d elements, %d deep) is no page of a tree", id, kind, count, depth)
	}
	keys := make([][]byte, count+1)
	keys[count] = high
	for i := range count {
		e := b[pageHeader+i*element:]
		key, ok := cut(e, count-i, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]))
		if !ok || len(key) == 0 || !between(key, low, high) || i > 0 && bytes.Compare(keys[i-1], key) >= 0 {
			return fmt.Errorf("page %d has a damaged key (element %d)", id, i)
		}
		keys[i] = key
	}
	for i := range count {
		child := binary.NativeEndian.Uint64(b[pageHeader+i*element+8:])
		if err := p.tree(child, judge, keys[i], keys[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// judge says what is wrong with a leaf element.
type judge func(flags uint32, value []byte) error

// leaf judges a leaf page, which may also stand inside a value.
func leaf(b []byte, name string, judge judge, low, high []byte) error {
	count := int(binary.NativeEndian.Uint16(b[10:]))
	if pageHeader+count*element > len(b) {
		return fmt.Errorf("%s cannot have %d elements", name, count)
	}
	var last []byte
	for i := range count {
		e := b[pageHeader+i*element:]
		at, keySize, size := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
		key, ok := cut(e, count-i, at, keySize)
		if !ok || len(key) == 0 || !between(key, low, high) || i > 0 && bytes.Compare(last, key) >= 0 {
			return fmt.Errorf("%s has a damaged key (element %d)", name, i)
		}
		value, ok := cut(e, count-i, at+keySize, size)
		if !ok || uint64(at)+uint64(keySize) > uint64(len(e)) {
			return fmt.Errorf("%s has a damaged value (element %d)", name, i)
		}
		if err := judge(binary.NativeEndian.Uint32(e), value); err != nil {
			return fmt.Errorf("%s, element %d: %w", name, i, err)
		}
		last = key
	}
	return nil
}

// cut returns n bytes at the given distance from the element that e begins with; they
// must lie after the elements, of which left are left.
func cut(e []byte, left int, at, n uint32) ([]byte, bool) {
	from, to := uint64(at), uint64(at)+uint64(n)
	if from < uint64(left*element) || to > uint64(len(e)) {
		return nil, false
	}
	return e[from:to], true
}

func between(key, low, high []byte) bool {
	return bytes.Compare(key, low) >= 0 && (high == nil || bytes.Compare(key, high) < 0)
}

// bucket judges an element of the root tree: a bucket, whose pages are elsewhere or, if
// it is small, in the value itself.
func (p *pageFile) bucket(flags uint32, value []byte) error {
	const head = 16 // root page, a counter that is not used here
	if flags != 1 || len(value) < head {
		return fmt.Errorf("it is no bucket (flags %d, %d bytes)", flags, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, plain, nil, nil, 0)
	}
	inline := value[head:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != kindLeaf {
		return fmt.Errorf("its bucket is damaged (%d bytes)", len(inline))
	}
	return leaf(inline, "the page in it", plain, nil, nil)
}

// plain judges an element of a bucket: there are no buckets in buckets.
func plain(flags uint32, _ []byte) error {
	if flags != 0 {
		return fmt.Errorf("its flags are %#x, want 0", flags)
	}
	return nil
}

// freelist judges the list of free pages: none of them may be in use.
func (p *pageFile) freelist() error {
	b, err := p.read(p.free)
	if err != nil {
		return fmt.Errorf("the list of free pages: %w", err)
	}
	kind, count := binary.NativeEndian.Uint16(b[8:]), uint64(binary.NativeEndian.Uint16(b[10:]))
	ids := b[pageHeader:]
	if count == 0xFFFF { // too many for the header: the first element has the count
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if kind != kindFree || count > uint64(len(ids)/8) {
		return fmt.Errorf("page %d (kind %#x, %d elements) is no list of free pages", p.free, kind, count)
	}
	for i := range count {
		if err := p.use(binary.NativeEndian.Uint64(ids[i*8:])); err != nil {
			return fmt.Errorf("the list of free pages: %w", err)
		}
	}
	return nil
}

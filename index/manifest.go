package index

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
)

// Manifest lists what the index of a bucket consists of at one generation of the
// lake. It is immutable once written.
type Manifest struct {
	Owner
	Generation uint64
	Runs       []RunRef // newest first
	Files      []File   // ascending by Number
	NextFile   uint32   // the number that the next data file gets
}

// RunRef names a run. Runs of one level follow each other, share no key, and are
// of one age.
type RunRef struct {
	Name               string // last element of its key in the store
	Entries, Deletions int64
	Size               int64 // bytes of the object
	FirstHi, LastHi    uint64
	Level              uint32
}

// File is a data file of the lake and its number in locations.
type File struct {
	Number uint32
	Key    string // in the store
	Rows   int64
}

const (
	manifestMagic       = "FIRNIDX1"
	manifestHeaderBytes = 16
	// maxManifestBytes bounds a manifest; at 100 bytes a data file that is 600,000 of them.
	maxManifestBytes = 64 << 20
)

// Key returns the store's key of an object of the bucket's index.
func (o Owner) Key(name string) string { return fmt.Sprintf("index/%d/%d/%s", o.Table, o.Bucket, name) }

// RunName and ManifestName make names from fresh ids (UUIDs as text).
func RunName(id string) string { return "r-" + id }

// ManifestName is the name of the manifest that a commit makes.
func ManifestName(generation uint64, id string) string {
	return fmt.Sprintf("m-%020d-%s", generation, id)
}

// Encode returns the bytes of a manifest, as docs/format/index.md specifies them.
// The nonce tells this put from any other at the name.
func (m *Manifest) Encode(nonce [nonceBytes]byte) ([]byte, error) {
	p := &pb.IndexManifest{TableId: m.Table, Bucket: m.Bucket, Generation: m.Generation, Nonce: nonce[:], NextFile: m.NextFile}
	for _, r := range m.Runs {
		p.Runs = append(p.Runs, &pb.IndexRunRef{
			Name: r.Name, Entries: uint64(r.Entries), Deletions: uint64(r.Deletions), Size: uint64(r.Size), //nolint:gosec // not negative
			FirstHi: r.FirstHi, LastHi: r.LastHi, Level: r.Level,
		})
	}
	for _, f := range m.Files {
		p.Files = append(p.Files, &pb.IndexFile{Number: f.Number, Key: f.Key, Rows: uint64(f.Rows)}) //nolint:gosec // not negative
	}
	message, err := proto.Marshal(p)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode index manifest", err)
	}
	if len(message) > maxManifestBytes {
		return nil, errs.New(errs.TooLarge, "index manifest of bucket %d/%d: %d bytes are over %d; the table has too many data files", m.Table, m.Bucket, len(message), maxManifestBytes)
	}
	out := make([]byte, manifestHeaderBytes, manifestHeaderBytes+len(message)+crcBytes)
	copy(out, manifestMagic)
	out[len(manifestMagic)] = formatVersion
	binary.LittleEndian.PutUint32(out[12:], uint32(len(message))) //nolint:gosec // bounded above
	out = append(out, message...)
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

// DecodeManifest reads a manifest that must be of one bucket. name is that of the object.
func DecodeManifest(b []byte, name string, o Owner) (*Manifest, error) {
	if len(b) < manifestHeaderBytes+crcBytes || string(b[:8]) != manifestMagic {
		return nil, corrupt(name, "manifest", "no manifest")
	}
	if b[8] != formatVersion {
		return nil, errs.New(errs.Unsupported, "index object %s: format version %d is not known; a newer firn wrote it", name, b[8])
	}
	end := len(b) - crcBytes
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return nil, corrupt(name, "manifest", "checksum")
	}
	if int64(binary.LittleEndian.Uint32(b[12:])) != int64(end-manifestHeaderBytes) {
		return nil, corrupt(name, "manifest", "length")
	}
	p := &pb.IndexManifest{}
	if err := proto.Unmarshal(b[manifestHeaderBytes:end], p); err != nil {
		return nil, corrupt(name, "manifest", err.Error())
	}
	m := &Manifest{Owner: Owner{p.GetTableId(), p.GetBucket()}, Generation: p.GetGeneration(), NextFile: p.GetNextFile()}
	for _, r := range p.GetRuns() {
		m.Runs = append(m.Runs, RunRef{
			Name: r.GetName(), Entries: int64(r.GetEntries()), Deletions: int64(r.GetDeletions()), Size: int64(r.GetSize()), //nolint:gosec // checked below
			FirstHi: r.GetFirstHi(), LastHi: r.GetLastHi(), Level: r.GetLevel(),
		})
	}
	for _, f := range p.GetFiles() {
		m.Files = append(m.Files, File{Number: f.GetNumber(), Key: f.GetKey(), Rows: int64(f.GetRows())}) //nolint:gosec // checked below
	}
	if why := m.broken(o); why != "" {
		return nil, corrupt(name, "manifest", why)
	}
	return m, nil
}

// broken says what no manifest may be, or "".
func (m *Manifest) broken(o Owner) string {
	if m.Owner != o {
		return "of another bucket"
	}
	for i, r := range m.Runs {
		if r.Name == "" || r.Entries < 1 || r.Deletions < 0 || r.Deletions > r.Entries || r.Size < 1 || r.FirstHi > r.LastHi {
			return "run " + r.Name
		}
		if i > 0 && r.Level > m.Runs[i-1].Level {
			return "levels out of order"
		}
	}
	for i, f := range m.Files {
		if f.Key == "" || f.Rows < 0 || f.Number >= m.NextFile || i > 0 && f.Number <= m.Files[i-1].Number {
			return "data file " + f.Key
		}
	}
	return ""
}

// File returns the data file of a number.
func (m *Manifest) File(number uint32) (File, bool) {
	i, ok := slices.BinarySearchFunc(m.Files, number, func(f File, n uint32) int { return int(int64(f.Number) - int64(n)) })
	if !ok {
		return File{}, false
	}
	return m.Files[i], true
}

package metastore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// EntryFormat is the version of the entries that this code writes. Numbers are
// never reused; a new command, or a new meaning of an old one, takes the next.
const EntryFormat = 1

// maxEntryBytes bounds what is decoded. The largest command is a definition of
// segments.MaxFields columns.
const maxEntryBytes = 16 << 20

// Key classes of the metastore.
const (
	logPrefix      = "meta/log/"
	snapshotPrefix = "meta/snapshot/"
	agentPrefix    = "agents/"
)

// Entry is one entry of the metadata log.
type Entry struct {
	Format  int
	Seq     uint64
	Prev    string    // Sum of the entry before; empty at Seq 1
	Writer  string    // incarnation or tool that wrote it
	Nonce   string    // unique to this attempt
	Time    time.Time // by the writer's clock, in microseconds, UTC
	Command Command
	Sum     string // checksum of the encoded entry; set by Encode and DecodeEntry
}

type entryJSON struct {
	Format  int                        `json:"format"`
	Seq     uint64                     `json:"seq"`
	Prev    string                     `json:"prev"`
	Writer  string                     `json:"writer"`
	Nonce   string                     `json:"nonce"`
	Time    time.Time                  `json:"time"`
	Command map[string]json.RawMessage `json:"command"`
}

// entryKey is meta/log/<seq 20 digits>.
func entryKey(seq uint64) string { return logPrefix + seqText(seq) }

func seqText(seq uint64) string { return fmt.Sprintf("%020d", seq) }

// parseSeqKey reads the number of a key of that prefix.
func parseSeqKey(prefix, key string) (uint64, bool) {
	if len(key) != len(prefix)+20 {
		return 0, false
	}
	n, err := strconv.ParseUint(key[len(prefix):], 10, 64)
	return n, err == nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the bytes of the entry's object, and sets Sum: a line of JSON,
// and a line of JSON with the CRC-32C of the first (newline included).
func (e *Entry) Encode() ([]byte, error) {
	command, err := plainJSON(e.Command)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode metadata entry", err)
	}
	line, err := plainJSON(entryJSON{
		Format: e.Format, Seq: e.Seq, Prev: e.Prev, Writer: e.Writer, Nonce: e.Nonce, Time: e.Time,
		Command: map[string]json.RawMessage{e.Command.Name(): command},
	})
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode metadata entry", err)
	}
	line = append(line, '\n')
	if len(line) > maxEntryBytes-64 {
		return nil, errs.New(errs.TooLarge, "metadata entry of %d bytes; the limit is %d", len(line), maxEntryBytes)
	}
	e.Sum = entrySum(line)
	return fmt.Appendf(line, "{\"crc32c\":\"%08x\"}\n", crc32.Checksum(line, castagnoli)), nil
}

// entrySum is what the next entry names as its predecessor: 128 bits of SHA-256
// of the first line.
func entrySum(line []byte) string {
	h := sha256.Sum256(line)
	return hex.EncodeToString(h[:16])
}

// DecodeEntry reads an entry's object. Bytes that are no entry are Corrupt; an
// entry of a newer format is Unsupported.
func DecodeEntry(body []byte) (*Entry, error) {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "metadata entry: "+format, args...)
	}
	if len(body) > maxEntryBytes {
		return nil, bad("%d bytes, over the limit of %d", len(body), maxEntryBytes)
	}
	end := bytes.IndexByte(body, '\n') + 1
	if end == 0 {
		return nil, bad("the first line has no end")
	}
	line := body[:end]
	want := fmt.Sprintf("{\"crc32c\":\"%08x\"}\n", crc32.Checksum(line, castagnoli))
	if string(body[end:]) != want {
		return nil, bad("the checksum line at byte %d is not %q", end, want)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, bad("%v", err)
	}
	if head.Format != EntryFormat {
		return nil, errs.New(errs.Unsupported, "metadata entry of format %d; this version reads format %d: upgrade Firn", head.Format, EntryFormat)
	}
	var j entryJSON
	if err := strictJSON(line, &j); err != nil {
		return nil, bad("%v", err)
	}
	command, err := decodeCommand(j.Command)
	if err != nil {
		return nil, bad("%v", err)
	}
	return &Entry{
		Format: j.Format, Seq: j.Seq, Prev: j.Prev, Writer: j.Writer, Nonce: j.Nonce, Time: j.Time,
		Command: command, Sum: entrySum(line),
	}, nil
}

// strictJSON decodes one value and refuses unknown fields and what follows: a
// field that is silently dropped would make two readers disagree.
func strictJSON(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errs.New(errs.Corrupt, "text follows the JSON value")
	}
	return nil
}

// plainJSON is json.Marshal without its escapes of <, > and &, so that a person
// can read "list<string>". They are undone at the end, because an encoder told
// not to make them keeps those of nested MarshalJSON methods.
func plainJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := b[:0]
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		if i+6 <= len(b) {
			if c, ok := htmlEscapes[string(b[i:i+6])]; ok {
				out = append(out, c)
				i += 5
				continue
			}
		}
		out = append(out, b[i], b[i+1]) // the escaped byte may be a backslash itself
		i++
	}
	return out, nil
}

var htmlEscapes = map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}

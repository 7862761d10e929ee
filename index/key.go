package index

import (
	"cmp"
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/zeebo/xxh3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Key stands for a primary key within its bucket: 128 bits of hash. Keys are
// compared as numbers, Hi first.
type Key struct{ Hi, Lo uint64 }

const keyBytes = 16

// Compare orders keys.
func (k Key) Compare(o Key) int { return cmp.Or(cmp.Compare(k.Hi, o.Hi), cmp.Compare(k.Lo, o.Lo)) }

// word folds a key into 64 bits for tables and filters. Hi or Lo alone would not
// do: one of them is the same for all keys that share a prefix, or the rest.
func (k Key) word() uint64 { return (k.Hi ^ bits.RotateLeft64(k.Lo, 32)) * 0x9E3779B97F4A7C15 }

func (k Key) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, k.Hi)
	return binary.BigEndian.AppendUint64(dst, k.Lo)
}

func keyFrom(b []byte) Key {
	return Key{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// Hasher makes the keys of a table's rows.
type Hasher struct {
	schema     *segments.Schema
	primaryKey []int32
	prefix     int // leading columns of primaryKey that are the bucket key
}

// NewHasher returns the hasher of a table. bucketKey is a prefix of primaryKey,
// or all of it; both are field ids of columns of schema.
func NewHasher(schema *segments.Schema, primaryKey, bucketKey []int32) (*Hasher, error) {
	if len(primaryKey) == 0 || len(bucketKey) == 0 || len(bucketKey) > len(primaryKey) {
		return nil, errs.New(errs.Invalid, "hash keys: the bucket key is no prefix of the primary key")
	}
	for i, id := range bucketKey {
		if primaryKey[i] != id {
			return nil, errs.New(errs.Invalid, "hash keys: the bucket key is no prefix of the primary key")
		}
	}
	return &Hasher{schema: schema, primaryKey: primaryKey, prefix: len(bucketKey)}, nil
}

// HasPrefix reports whether keys that share the bucket key are neighbours.
func (h *Hasher) HasPrefix() bool { return h.prefix < len(h.primaryKey) }

// Keys returns the key of each row of rec, whose columns are the schema's. The
// whole primary key is hashed to 128 bits if it is the bucket key, else the bucket
// key to the upper 64 and the rest to the lower. Errors are those of
// [segments.NewKeyEncoder].
func (h *Hasher) Keys(rec arrow.RecordBatch) ([]Key, error) {
	e, err := segments.NewKeyEncoder(rec, h.primaryKey, h.schema)
	if err != nil {
		return nil, err
	}
	out := make([]Key, rec.NumRows())
	var b []byte
	for i := range out {
		if !h.HasPrefix() {
			b = e.Append(b[:0], i, 0, h.prefix)
			sum := xxh3.Hash128(b)
			out[i] = Key{sum.Hi, sum.Lo}
			continue
		}
		b = e.Append(b[:0], i, 0, h.prefix)
		out[i].Hi = xxh3.Hash(b)
		b = e.Append(b[:0], i, h.prefix, len(h.primaryKey))
		out[i].Lo = xxh3.Hash(b)
	}
	return out, nil
}

// Prefixes returns, for each row of rec, the upper half of the keys that share its
// bucket key. Only the columns of the bucket key are read.
func (h *Hasher) Prefixes(rec arrow.RecordBatch) ([]uint64, error) {
	e, err := segments.NewKeyEncoder(rec, h.primaryKey[:h.prefix], h.schema)
	if err != nil {
		return nil, err
	}
	out := make([]uint64, rec.NumRows())
	var b []byte
	for i := range out {
		b = e.Append(b[:0], i, 0, h.prefix)
		out[i] = xxh3.Hash(b)
	}
	return out, nil
}

// KeysOf is Keys for rows of another schema that has the key columns under the
// same field ids.
func (h *Hasher) KeysOf(rec arrow.RecordBatch, schema *segments.Schema) ([]Key, error) {
	other := *h
	other.schema = schema
	return other.Keys(rec)
}

// PrefixesOf is Prefixes for rows of another schema that has the columns of the
// bucket key under the same field ids.
func (h *Hasher) PrefixesOf(rec arrow.RecordBatch, schema *segments.Schema) ([]uint64, error) {
	other := *h
	other.schema = schema
	return other.Prefixes(rec)
}

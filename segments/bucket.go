package segments

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/twmb/murmur3"

	"github.com/firn-data/firn/internal/errs"
)

// The bucket function. One key column: Iceberg's bucket transform exactly, so
// that live rows and the lake's partitions agree; NULL is in bucket 0. Several:
// the same hash over the columns' encodings one after the other, each with a
// byte in front that is 0 for NULL (and nothing follows) or 1, then the
// encoding's length as four little-endian bytes, then the encoding. So no two
// different keys make the same bytes.
// INVARIANT(seg-6): the function never changes, or rows lose their keys.

// CheckBucketKey says why columns of t cannot be part of a bucket key; nil when they can.
func CheckBucketKey(t Type) error {
	switch t.Kind {
	case Float, Double, Boolean, List, Map, Struct:
		return errs.New(errs.Invalid, "%s cannot be hashed into buckets: use int, long, decimal, date, time, timestamp, "+
			"timestamptz, string, uuid, fixed or binary", t)
	}
	return nil
}

func bucketOf(hash uint32, n int32) int32 { return int32(hash&math.MaxInt32) % n }

// BucketRows returns the bucket of each row, in [0, n).
func BucketRows(rec arrow.RecordBatch, keyFieldIDs []int32, s *Schema, n int32) ([]int32, error) {
	if n < 1 {
		return nil, errs.New(errs.Invalid, "assign buckets: a table has at least one bucket, not %d", n)
	}
	if len(keyFieldIDs) == 0 {
		return nil, errs.New(errs.Invalid, "assign buckets: the table has no bucket key")
	}
	keys := make([]keyColumn, len(keyFieldIDs))
	for i, id := range keyFieldIDs {
		at := s.IndexOfID(id)
		if at < 0 || int64(at) >= rec.NumCols() {
			return nil, errs.New(errs.Invalid, "assign buckets: schema %d has no column with field id %d", s.ID, id)
		}
		f := s.Fields[at]
		err := CheckBucketKey(f.Type)
		if err == nil {
			err = checkArrowType(f.Type, rec.Column(at).DataType())
		}
		if err != nil {
			return nil, errs.In("assign buckets: column "+f.Name, err)
		}
		keys[i] = newKeyColumn(f.Type, rec.Column(at).Data())
	}
	out := make([]int32, rec.NumRows())
	if n == 1 {
		return out, nil
	}
	if len(keys) == 1 {
		keys[0].buckets(out, n)
	} else {
		compositeBuckets(keys, out, n)
	}
	return out, nil
}

// BucketOfValue returns the bucket of a single-column key given as a non-NULL
// single-value binary of the column's type.
func BucketOfValue(t Type, value []byte, n int32) (int32, error) {
	h, err := HashValue(t, value)
	if err != nil {
		return 0, err
	}
	return bucketOf(h, n), nil
}

// HashValue is Iceberg's 32-bit hash of a value, given as single-value binary.
func HashValue(t Type, value []byte) (uint32, error) {
	if err := CheckBucketKey(t); err != nil {
		return 0, err
	}
	v, err := FromIcebergValue(value, t)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int32:
		return hashLong(int64(v)), nil
	case int64:
		return hashLong(v), nil
	}
	return murmur3.Sum32(value), nil
}

// hashLong is murmur3_x86_32 with seed 0 of v's eight little-endian bytes.
func hashLong(v int64) uint32 {
	h := murmurRound(0, uint32(v))
	h = murmurRound(h, uint32(uint64(v)>>32))
	h ^= 8
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

func murmurRound(h, k uint32) uint32 {
	k *= 0xcc9e2d51
	k = k<<15 | k>>17
	k *= 0x1b873593
	h ^= k
	h = h<<13 | h>>19
	return h*5 + 0xe6546b64
}

// keyColumn reads one column's encodings without boxing.
type keyColumn struct {
	kind    Kind
	width   int
	off     int
	valid   []byte // nil: no NULL
	values  []byte
	offsets []int32
}

func newKeyColumn(t Type, d arrow.ArrayData) keyColumn {
	k := keyColumn{kind: t.Kind, width: t.width(), off: d.Offset(), values: buf(d.Buffers(), 1)}
	if b := buf(d.Buffers(), 0); len(b) > 0 && d.NullN() != 0 {
		k.valid = b
	}
	if t.Kind == String || t.Kind == Binary {
		k.offsets, k.values = int32s(k.values), buf(d.Buffers(), 2)
	}
	return k
}

func (k *keyColumn) null(row int) bool {
	at := k.off + row
	return k.valid != nil && k.valid[at>>3]>>(at&7)&1 == 0
}

// long returns integers and times as the int64 that is hashed.
func (k *keyColumn) long(row int) int64 {
	at := (k.off + row) * k.width
	if k.width == 4 {
		return int64(int32(binary.LittleEndian.Uint32(k.values[at:])))
	}
	return int64(binary.LittleEndian.Uint64(k.values[at:]))
}

func (k *keyColumn) isLong() bool {
	switch k.kind {
	case Int, Long, Date, Time, Timestamp, TimestampTZ:
		return true
	}
	return false
}

// bytes returns the other kinds' encoding; scratch is for decimals.
func (k *keyColumn) bytes(row int, scratch []byte) []byte {
	at := k.off + row
	switch {
	case k.offsets != nil:
		return k.values[k.offsets[at]:k.offsets[at+1]]
	case k.kind == Decimal:
		return appendDecimal(scratch, decimalAt(k.values, at))
	}
	return k.values[at*k.width : (at+1)*k.width]
}

func (k *keyColumn) buckets(out []int32, n int32) {
	var scratch [16]byte
	long := k.isLong()
	for i := range out {
		switch {
		case k.null(i):
			out[i] = 0
		case long:
			out[i] = bucketOf(hashLong(k.long(i)), n)
		default:
			out[i] = bucketOf(murmur3.Sum32(k.bytes(i, scratch[:0])), n)
		}
	}
}

func compositeBuckets(keys []keyColumn, out []int32, n int32) {
	var b []byte
	var scratch [16]byte
	for i := range out {
		b = b[:0]
		for j := range keys {
			k := &keys[j]
			switch {
			case k.null(i):
				b = append(b, 0)
			case k.isLong():
				b = append(b, 1, 8, 0, 0, 0)
				b = binary.LittleEndian.AppendUint64(b, uint64(k.long(i)))
			default:
				v := k.bytes(i, scratch[:0])
				b = append(b, 1)
				b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
				b = append(b, v...)
			}
		}
		out[i] = bucketOf(murmur3.Sum32(b), n)
	}
}

// BucketPart is the rows of one bucket out of a batch.
type BucketPart struct {
	Bucket int32
	Rows   []int32 // their positions in the batch, ascending
	Batch  arrow.RecordBatch
}

// SplitByBucket splits a batch into the rows of each bucket, order kept,
// buckets ascending, only those that have rows. Rows that all go to one bucket
// are not copied.
func SplitByBucket(rec arrow.RecordBatch, keyFieldIDs []int32, s *Schema, n int32) ([]BucketPart, error) {
	buckets, err := BucketRows(rec, keyFieldIDs, s, n)
	if err != nil {
		return nil, err
	}
	parts := groupRows(buckets, n)
	for i := range parts {
		if len(parts) == 1 {
			rec.Retain()
			parts[i].Batch = rec
			break
		}
		if parts[i].Batch, err = Take(rec, parts[i].Rows); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// groupRows is a counting sort of the rows by bucket.
func groupRows(buckets []int32, n int32) []BucketPart {
	ends := make([]int32, n)
	for _, b := range buckets {
		ends[b]++
	}
	var parts []BucketPart
	rows := make([]int32, len(buckets))
	start := int32(0)
	for b, count := range ends {
		if count > 0 {
			parts = append(parts, BucketPart{Bucket: int32(b), Rows: rows[start : start+count : start+count]})
		}
		ends[b] = start
		start += count
	}
	for i, b := range buckets {
		rows[ends[b]] = int32(i)
		ends[b]++
	}
	return parts
}

package segments

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
)

// KeyEncoder writes the values of some columns of a row as bytes that are equal
// exactly when the values are: per column the length of its encoding as four
// little-endian bytes, then the encoding, which is that of the bucket function
// (integers and times as eight bytes, so that a widened column keeps its keys) and
// one byte for a boolean. Key columns hold no NULL.
// INVARIANT(seg-8): the encoding never changes, or rows lose their keys.
type KeyEncoder struct {
	columns []keyColumn
}

// NewKeyEncoder reads the columns with the given field ids out of rec, whose
// columns are those of s. Errors of class Invalid: a column that is missing, of a
// type that cannot be a key, or with a NULL.
func NewKeyEncoder(rec arrow.RecordBatch, fieldIDs []int32, s *Schema) (*KeyEncoder, error) {
	e := &KeyEncoder{columns: make([]keyColumn, len(fieldIDs))}
	for i, id := range fieldIDs {
		at := s.IndexOfID(id)
		if at < 0 || int64(at) >= rec.NumCols() {
			return nil, errs.New(errs.Invalid, "encode keys: schema %d has no column with field id %d", s.ID, id)
		}
		f := s.Fields[at]
		if f.Type.Kind != Boolean {
			if err := CheckBucketKey(f.Type); err != nil {
				return nil, errs.In("encode keys: column "+f.Name, err)
			}
		}
		if err := checkArrowType(f.Type, rec.Column(at).DataType()); err != nil {
			return nil, errs.In("encode keys: column "+f.Name, err)
		}
		if rec.Column(at).NullN() > 0 {
			return nil, errs.New(errs.Invalid, "column %q: a key column holds no NULL", f.Name)
		}
		e.columns[i] = newKeyColumn(f.Type, rec.Column(at).Data())
	}
	return e, nil
}

// Append appends the encoding of one row's columns [from, to), counted in the
// order of the field ids.
func (e *KeyEncoder) Append(dst []byte, row, from, to int) []byte {
	var scratch [16]byte
	for i := from; i < to; i++ {
		k := &e.columns[i]
		switch {
		case k.isLong():
			dst = append(dst, 8, 0, 0, 0)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(k.long(row)))
		case k.kind == Boolean:
			at := k.off + row
			dst = append(dst, 1, 0, 0, 0, k.values[at>>3]>>(at&7)&1)
		default:
			v := k.bytes(row, scratch[:0])
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v))) //nolint:gosec // a value is below 2 GiB
			dst = append(dst, v...)
		}
	}
	return dst
}

package rows

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// column collects the values of one column, or of one child of a nested one.
// A value that fails may leave a part of itself behind: whoever appends rows
// truncates every column back to the rows that are good.
type column interface {
	// json appends the value that the scanner stands at; it is not null.
	json(s *scanner) bool
	// text appends the value of a CSV field.
	text(b []byte) error
	// null appends a NULL, or in a NULL parent what stands in for a value.
	null()
	len() int
	// size estimates the bytes held.
	size() int
	truncate(n int)
	// take hands the values over as Arrow data and starts anew with room for as many.
	take() arrow.ArrayData
}

// newColumn returns an empty column of the type.
func newColumn(t segments.Type, ignoreUnknown bool) (column, error) {
	dt := t.Arrow()
	switch t.Kind {
	case segments.Boolean:
		return &boolColumn{}, nil
	case segments.Int:
		return &intColumn{}, nil
	case segments.Long:
		return &longColumn{}, nil
	case segments.Float:
		return &floatColumn{}, nil
	case segments.Double:
		return &doubleColumn{}, nil
	case segments.Decimal:
		return &decimalColumn{dt: dt, precision: t.Precision, scale: t.Scale}, nil
	case segments.Date:
		return &dateColumn{}, nil
	case segments.Time:
		return &timeColumn{}, nil
	case segments.Timestamp, segments.TimestampTZ:
		return &timestampColumn{dt: dt, zone: t.Kind == segments.TimestampTZ}, nil
	case segments.String:
		return &stringColumn{}, nil
	case segments.Binary:
		return &binaryColumn{}, nil
	case segments.UUID:
		return &fixedColumn{dt: dt, width: 16, uuid: true}, nil
	case segments.Fixed:
		return &fixedColumn{dt: dt, width: t.Length}, nil
	case segments.List:
		return newListColumn(dt, t, ignoreUnknown)
	case segments.Map:
		return newMapColumn(dt, t, ignoreUnknown)
	case segments.Struct:
		return newStructColumn(dt, t, ignoreUnknown)
	}
	return nil, errs.New(errs.Internal, "no column for type %s", t)
}

// values is a column of fixed-width values.
type values[T any] struct {
	validity
	vals []T
}

func (c *values[T]) append(v T) {
	c.vals = append(c.vals, v)
	c.valid()
}

func (c *values[T]) null() {
	var zero T
	c.vals = append(c.vals, zero)
	c.invalid()
}

func (c *values[T]) truncate(n int) {
	c.vals = c.vals[:n]
	c.validity.truncate(n)
}

// takeValues hands a column of fixed-width values over.
func takeValues[T any](c *values[T], dt arrow.DataType, bytes func([]T) []byte) arrow.ArrayData {
	vals := c.vals
	c.vals = make([]T, 0, len(vals))
	bitmap, n, nulls := c.take()
	return newData(dt, n, nulls, nil, bitmap, memory.NewBufferBytes(bytes(vals)))
}

// newData makes array data of buffers that the garbage collector owns.
func newData(dt arrow.DataType, n, nulls int, children []arrow.ArrayData, buffers ...*memory.Buffer) arrow.ArrayData {
	return array.NewData(dt, n, buffers, children, nulls, 0)
}

// decodeValue appends the value or null that the scanner stands at.
func decodeValue(s *scanner, c column, required bool) bool {
	if s.space() != 'n' {
		return c.json(s)
	}
	if !s.word("null") {
		return false
	}
	if required {
		return s.fail(errRequiredNull)
	}
	c.null()
	return true
}

const (
	errRequiredNull    = valueReason("the column is required: null is not a value")
	errRequiredMissing = valueReason("the column is required and missing")
)

// jsonText appends a nested value whose CSV field is JSON.
func jsonText(c column, b []byte) error {
	var s scanner
	s.reset(b)
	if s.space(); !c.json(&s) {
		if s.path != "" {
			return valueReason(s.path + ": " + s.why.Error())
		}
		return s.why
	}
	if s.space() != 0 || s.pos < len(s.buf) {
		return errAfterValue
	}
	return nil
}

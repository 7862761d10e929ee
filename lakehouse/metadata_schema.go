package lakehouse

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// icebergSchema returns a Firn schema version as an Iceberg schema, field ids
// kept. First is the table's first schema version: a required field that came
// later is optional in the lake unless the format can carry its initial default,
// because older files have no value for it.
func icebergSchema(s, first *segments.Schema, format int) (*iceberg.Schema, error) {
	born := map[int32]bool{}
	collectIDs(first.Fields, born)
	c := schemaConverter{born: born, format: format}
	fields, err := c.fields(s.Fields, true)
	if err != nil {
		return nil, err
	}
	// Through JSON and back, so that defaults have the form that they have when
	// the metadata is loaded again, and schemas compare equal.
	body, err := json.Marshal(iceberg.NewSchema(int(s.ID), fields...))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode iceberg schema", err)
	}
	out := new(iceberg.Schema)
	if err := json.Unmarshal(body, out); err != nil {
		return nil, errs.Wrap(errs.Internal, "decode iceberg schema", err)
	}
	return out, nil
}

func collectIDs(fields []segments.Field, into map[int32]bool) {
	for _, f := range fields {
		into[f.ID] = true
		collectIDs(f.Type.Children, into)
	}
}

type schemaConverter struct {
	born   map[int32]bool // field ids of the first schema
	format int
}

// fields converts the fields of a struct (or of the row). Within a struct that
// came later as a whole, nothing is missing from older files but the struct itself.
func (c schemaConverter) fields(fields []segments.Field, parentBorn bool) ([]iceberg.NestedField, error) {
	out := make([]iceberg.NestedField, len(fields))
	for i, f := range fields {
		t, err := c.convert(f.Type, c.born[f.ID])
		if err != nil {
			return nil, err
		}
		n := iceberg.NestedField{ID: int(f.ID), Name: f.Name, Type: t, Required: f.Required, Doc: f.Doc}
		late := parentBorn && !c.born[f.ID]
		if err := c.setDefaults(&n, f, late); err != nil {
			return nil, err
		}
		if late && n.InitialDefault == nil {
			n.Required = false
		}
		out[i] = n
	}
	return out, nil
}

func (c schemaConverter) setDefaults(n *iceberg.NestedField, f segments.Field, late bool) error {
	if c.format < 3 || len(f.Default) == 0 {
		return nil
	}
	v, err := f.DefaultValue()
	if err != nil || v == nil {
		return err
	}
	single, ok := jsonSingleValue(f.Type, v)
	if !ok {
		return nil
	}
	n.WriteDefault = single
	if late {
		n.InitialDefault = single
	}
	return nil
}

// convert returns the Iceberg type; born says whether the field that has it
// stands in the first schema.
func (c schemaConverter) convert(t segments.Type, born bool) (iceberg.Type, error) {
	switch t.Kind {
	case segments.Decimal:
		return iceberg.DecimalTypeOf(t.Precision, t.Scale), nil
	case segments.Fixed:
		return iceberg.FixedTypeOf(t.Length), nil
	case segments.List:
		e, err := c.convert(t.Children[0].Type, c.born[t.Children[0].ID])
		if err != nil {
			return nil, err
		}
		return &iceberg.ListType{ElementID: int(t.Children[0].ID), Element: e, ElementRequired: t.Children[0].Required}, nil
	case segments.Map:
		k, err := c.convert(t.Children[0].Type, c.born[t.Children[0].ID])
		if err != nil {
			return nil, err
		}
		v, err := c.convert(t.Children[1].Type, c.born[t.Children[1].ID])
		if err != nil {
			return nil, err
		}
		return &iceberg.MapType{
			KeyID: int(t.Children[0].ID), KeyType: k,
			ValueID: int(t.Children[1].ID), ValueType: v, ValueRequired: t.Children[1].Required,
		}, nil
	case segments.Struct:
		fields, err := c.fields(t.Children, born)
		if err != nil {
			return nil, err
		}
		return &iceberg.StructType{FieldList: fields}, nil
	}
	if p, ok := primitives[t.Kind]; ok {
		return p, nil
	}
	return nil, errs.New(errs.Internal, "type kind %d has no Iceberg form", t.Kind)
}

var primitives = map[segments.Kind]iceberg.Type{
	segments.Boolean:     iceberg.PrimitiveTypes.Bool,
	segments.Int:         iceberg.PrimitiveTypes.Int32,
	segments.Long:        iceberg.PrimitiveTypes.Int64,
	segments.Float:       iceberg.PrimitiveTypes.Float32,
	segments.Double:      iceberg.PrimitiveTypes.Float64,
	segments.Date:        iceberg.PrimitiveTypes.Date,
	segments.Time:        iceberg.PrimitiveTypes.Time,
	segments.Timestamp:   iceberg.PrimitiveTypes.Timestamp,
	segments.TimestampTZ: iceberg.PrimitiveTypes.TimestampTz,
	segments.String:      iceberg.PrimitiveTypes.String,
	segments.UUID:        iceberg.PrimitiveTypes.UUID,
	segments.Binary:      iceberg.PrimitiveTypes.Binary,
}

// jsonSingleValue returns a default in Iceberg's JSON single-value form (spec,
// appendix D); false for what JSON cannot hold.
func jsonSingleValue(t segments.Type, v any) (any, bool) {
	switch v := v.(type) {
	case float32:
		return v, !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	case int32:
		if t.Kind == segments.Date {
			return time.Unix(int64(v)*86400, 0).UTC().Format(time.DateOnly), true
		}
	case int64:
		at := time.UnixMicro(v).UTC()
		switch t.Kind {
		case segments.Time:
			return at.Format("15:04:05.000000"), true
		case segments.Timestamp:
			return at.Format("2006-01-02T15:04:05.000000"), true
		case segments.TimestampTZ:
			return at.Format("2006-01-02T15:04:05.000000") + "+00:00", true
		}
	case decimal128.Num:
		return decimalText(v, t.Scale), true
	case []byte:
		if t.Kind == segments.UUID {
			id, err := uuid.FromBytes(v)
			return id.String(), err == nil
		}
		return strings.ToUpper(hex.EncodeToString(v)), true
	}
	return v, true
}

// decimalText writes an unscaled decimal with exactly scale digits after the point.
func decimalText(v decimal128.Num, scale int) string {
	digits := new(big.Int).Abs(v.BigInt()).String()
	if scale > 0 {
		if short := scale + 1 - len(digits); short > 0 {
			digits = strings.Repeat("0", short) + digits
		}
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	if v.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

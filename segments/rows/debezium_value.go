package rows

import (
	"encoding/base64"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows/literal"
)

// Names of types in Kafka Connect schemas.
const (
	connectDecimal  = "org.apache.kafka.connect.data.Decimal"
	variableDecimal = "io.debezium.data.VariableScaleDecimal"
)

// temporal is what an integer of a type stands for.
type temporal struct {
	kind  segments.Kind // Date, Time or Timestamp
	units int64         // in a second; 0: days
}

var temporals = map[string]temporal{
	"io.debezium.time.Date":                   {segments.Date, 0},
	"org.apache.kafka.connect.data.Date":      {segments.Date, 0},
	"io.debezium.time.Time":                   {segments.Time, 1e3},
	"org.apache.kafka.connect.data.Time":      {segments.Time, 1e3},
	"io.debezium.time.MicroTime":              {segments.Time, 1e6},
	"io.debezium.time.NanoTime":               {segments.Time, 1e9},
	"io.debezium.time.Timestamp":              {segments.Timestamp, 1e3},
	"org.apache.kafka.connect.data.Timestamp": {segments.Timestamp, 1e3},
	"io.debezium.time.MicroTimestamp":         {segments.Timestamp, 1e6},
	"io.debezium.time.NanoTimestamp":          {segments.Timestamp, 1e9},
}

// isoNames are types whose texts end in a Z that says nothing: the column's type
// has no zone.
var isoNames = map[string]bool{
	"io.debezium.time.IsoDate": true, "io.debezium.time.IsoTime": true, "io.debezium.time.IsoTimestamp": true, "io.debezium.time.ZonedTime": true,
}

// unsentValues is what Debezium writes for a value that it was not sent, as text
// and as bytes.
var unsentValues = map[string]bool{
	`"__debezium_unavailable_value"`:             true,
	`"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="`: true,
}

const (
	errTemporal    = valueReason("the source's type of time does not fit the column")
	errNanoseconds = valueReason("finer than a microsecond: the rest would be lost")
	errNotDay      = valueReason("not the start of a day: the time would be lost")
	errTooFar      = valueReason("outside the range of times")
	errTimeOfDay   = valueReason("outside of a day")
	errDecimalText = valueReason("neither a decimal nor base64 of one")
	errDecimalForm = valueReason("not a decimal of the source's schema")
)

// appendConverted appends a value of an event in the form that the column takes.
// Without a schema, integers count days since 1970 in a date and microseconds in
// other times, and a text in a decimal is base64 if it is no number.
func appendConverted(dst, value []byte, t segments.Type, enc encoding) ([]byte, error) {
	if unsentValues[string(value)] {
		return dst, errNotSent
	}
	if enc.name == connectDecimal || enc.name == variableDecimal {
		return appendDecimalOf(dst, value, t, enc)
	}
	quoted := value[0] == '"'
	switch t.Kind {
	case segments.Date, segments.Time, segments.Timestamp, segments.TimestampTZ:
		if !quoted {
			return appendTemporal(dst, value, t, enc)
		}
		if isoNames[enc.name] && t.Kind != segments.TimestampTZ && len(value) > 2 && value[len(value)-2] == 'Z' {
			return append(append(dst, value[:len(value)-2]...), '"'), nil
		}
	case segments.Decimal:
		if quoted && enc.name == "" {
			return appendDecimalText(dst, value, t)
		}
	}
	return append(dst, value...), nil
}

func appendTemporal(dst, value []byte, t segments.Type, enc encoding) ([]byte, error) {
	n, err := integerText(value)
	if err != nil {
		return append(dst, value...), nil // the column says what is wrong
	}
	from, known := temporals[enc.name]
	if !known {
		from = temporal{segments.Timestamp, 1e6}
		switch t.Kind {
		case segments.Date:
			from = temporal{segments.Date, 0}
		case segments.Time:
			from.kind = segments.Time
		}
	}
	if (from.kind == segments.Time) != (t.Kind == segments.Time) {
		return dst, errTemporal
	}
	us, err := from.micros(n)
	if err != nil {
		return dst, err
	}
	switch t.Kind {
	case segments.Date:
		if us%dayMicros != 0 {
			return dst, errNotDay
		}
		dst = append(literal.AppendDate(append(dst, '"'), int32(us/dayMicros)), '"') //nolint:gosec // µs of 64 bits have fewer days
	case segments.Time:
		if us < 0 || us >= dayMicros {
			return dst, errTimeOfDay
		}
		dst = append(literal.AppendTime(append(dst, '"'), us), '"')
	default:
		dst = strconv.AppendInt(dst, us, 10)
	}
	return dst, nil
}

// micros returns microseconds.
func (t temporal) micros(n int64) (int64, error) {
	factor := int64(1)
	switch t.units {
	case 0:
		factor = dayMicros
	case 1e3:
		factor = 1000
	case 1e9:
		if n%1000 != 0 {
			return 0, errNanoseconds
		}
		return n / 1000, nil
	}
	if n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return 0, errTooFar
	}
	return n * factor, nil
}

// appendDecimalText appends a text in a decimal column that no schema describes.
func appendDecimalText(dst, value []byte, t segments.Type) ([]byte, error) {
	text := value[1 : len(value)-1]
	if _, err := literal.ParseNumber(text); err == nil {
		return append(dst, value...), nil
	}
	if strings.HasSuffix(string(text), "Infinity") || len(text)%4 != 0 {
		return dst, errDecimalText
	}
	plain, err := unscaledText(string(text), t.Scale)
	if err != nil {
		return dst, errDecimalText
	}
	return append(append(append(dst, '"'), plain...), '"'), nil
}

// appendDecimalOf appends a value that the event's schema says is a decimal.
func appendDecimalOf(dst, value []byte, t segments.Type, enc encoding) ([]byte, error) {
	text := value
	if enc.name == variableDecimal {
		var s scanner
		s.reset(value)
		scale := -1
		ok := s.each(func(name, part []byte) bool {
			switch string(name) {
			case "scale":
				scale, _ = scaleOf(string(part))
			case "value":
				text = part
			}
			return true
		})
		if !ok || scale < 0 {
			return dst, errDecimalForm
		}
		enc.scale = scale
	}
	if len(text) < 2 || text[0] != '"' {
		return append(dst, value...), nil // a number already
	}
	plain, err := unscaledText(strings.ReplaceAll(string(text[1:len(text)-1]), `\/`, "/"), enc.scale)
	if err != nil {
		return dst, err
	}
	switch t.Kind {
	case segments.Float, segments.Double, segments.Int, segments.Long:
		return append(dst, plain...), nil
	}
	return append(append(append(dst, '"'), plain...), '"'), nil
}

const maxUnscaledBytes = 64 // a decimal of 38 digits has 16

// unscaledText is the plain text of base64 of a big-endian two's complement integer
// × 10^-scale.
func unscaledText(text string, scale int) (string, error) {
	if base64.StdEncoding.DecodedLen(len(text)) > maxUnscaledBytes+2 {
		return "", errDecimalForm
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 {
		return "", errDecimalForm
	}
	n := new(big.Int).SetBytes(raw)
	if raw[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
	}
	sign, all := "", new(big.Int).Abs(n).String()
	if n.Sign() < 0 {
		sign = "-"
	}
	switch {
	case scale < 0:
		return sign + all + strings.Repeat("0", -scale), nil
	case scale == 0:
		return sign + all, nil
	}
	if len(all) <= scale {
		all = strings.Repeat("0", scale-len(all)+1) + all
	}
	return sign + all[:len(all)-scale] + "." + all[len(all)-scale:], nil
}

const maxScale = 1000

// scaleOf reads the scale of a decimal, which Connect writes as a text.
func scaleOf(v any) (int, bool) {
	var n int
	var err error
	switch v := v.(type) {
	case string:
		n, err = strconv.Atoi(v)
	case float64:
		n = int(v)
	default:
		return 0, false
	}
	return n, err == nil && n >= -maxScale && n <= maxScale
}

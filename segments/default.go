package segments

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
)

// DefaultValue returns a column's default as FromIcebergValue would return it,
// or nil when it has none. A default that does not fit the column is Invalid.
func (f Field) DefaultValue() (any, error) {
	if len(f.Default) == 0 || bytes.Equal(bytes.TrimSpace(f.Default), []byte("null")) {
		return nil, nil
	}
	v, err := jsonValue(f.Type, f.Default)
	if err != nil {
		return nil, errs.New(errs.Invalid, "column %q: default %s: %v", f.Name, f.Default, err)
	}
	return v, nil
}

func checkDefault(f Field, path string, depth int) error {
	v, err := f.DefaultValue()
	if err != nil || v == nil {
		return err
	}
	if depth > 0 {
		return errs.New(errs.Invalid, "column %q: only top-level columns have defaults", path)
	}
	if f.AutoIncrement {
		return errs.New(errs.Invalid, "column %q: an auto_increment column has no default", path)
	}
	return nil
}

// jsonValue reads one primitive value in the rows API's form.
func jsonValue(t Type, raw json.RawMessage) (any, error) {
	if t.Kind.Nested() {
		return nil, errs.New(errs.Invalid, "columns of type %s have no default but null", t)
	}
	text, quoted, err := scalarText(raw)
	if err != nil {
		return nil, err
	}
	switch t.Kind {
	case Boolean:
		if quoted || text != "true" && text != "false" {
			return nil, errs.New(errs.Invalid, "true or false is expected")
		}
		return text == "true", nil
	case Int:
		n, err := strconv.ParseInt(text, 10, 32)
		return int32(n), numberErr(err, t)
	case Long:
		n, err := strconv.ParseInt(text, 10, 64)
		return n, numberErr(err, t)
	case Float:
		n, err := parseFloat(text, quoted, 32)
		return float32(n), numberErr(err, t)
	case Double:
		n, err := parseFloat(text, quoted, 64)
		return n, numberErr(err, t)
	case Decimal:
		return parseDecimal(text, t)
	}
	if !quoted && (t.Kind == Timestamp || t.Kind == TimestampTZ) {
		n, err := strconv.ParseInt(text, 10, 64)
		return n, numberErr(err, t)
	}
	if !quoted {
		return nil, errs.New(errs.Invalid, "a string is expected for %s", t)
	}
	return textValue(t, text)
}

// scalarText returns a JSON scalar's text and whether it was a string.
func scalarText(raw json.RawMessage) (text string, quoted bool, err error) {
	raw = bytes.TrimSpace(raw)
	if !json.Valid(raw) {
		return "", false, errs.New(errs.Invalid, "it is not JSON")
	}
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &text)
		return text, true, err
	case '{', '[':
		return "", false, errs.New(errs.Invalid, "a single value is expected")
	}
	return string(raw), false, nil
}

func numberErr(err error, t Type) error {
	if err == nil {
		return nil
	}
	return errs.New(errs.Invalid, "it does not fit %s", t)
}

func parseFloat(text string, quoted bool, bits int) (float64, error) {
	if quoted {
		switch text {
		case "NaN":
			return math.NaN(), nil
		case "Infinity", "+Infinity", "inf", "Inf", "+Inf":
			return math.Inf(1), nil
		case "-Infinity", "-inf", "-Inf":
			return math.Inf(-1), nil
		}
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(text, bits)
}

// parseDecimal reads an exact decimal: digits past the scale must be zero.
func parseDecimal(text string, t Type) (decimal128.Num, error) {
	const maxText = 128 // far more than 38 digits, and an exponent cannot ask for gigabytes
	r, ok := new(big.Rat), false
	if len(text) <= maxText && !strings.ContainsAny(text, "/eEpPxX_") {
		r, ok = r.SetString(text)
	}
	if !ok {
		return decimal128.Num{}, errs.New(errs.Invalid, "a plain decimal number is expected for %s", t)
	}
	r.Mul(r, new(big.Rat).SetInt(pow10(t.Scale)))
	if !r.IsInt() {
		return decimal128.Num{}, errs.New(errs.Invalid, "it has more than %d digits after the point", t.Scale)
	}
	if r.Num().CmpAbs(pow10(t.Precision)) >= 0 {
		return decimal128.Num{}, errs.New(errs.Invalid, "it does not fit %s", t)
	}
	return decimal128.FromBigInt(r.Num()), nil
}

func pow10(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// textValue reads the values that JSON writes as strings.
func textValue(t Type, s string) (any, error) {
	switch t.Kind {
	case String:
		return s, nil
	case UUID:
		u, err := uuid.Parse(s)
		if err != nil || len(s) != 36 {
			return nil, errs.New(errs.Invalid, "a uuid is expected")
		}
		return u[:], nil
	case Fixed, Binary:
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, errs.New(errs.Invalid, "base64 is expected")
		}
		if t.Kind == Fixed && len(b) != t.Length {
			return nil, errs.New(errs.Invalid, "it has %d bytes, and %s needs %d", len(b), t, t.Length)
		}
		return b, nil
	}
	return timeValue(t, s)
}

func timeValue(t Type, s string) (any, error) {
	layout, want := "2006-01-02", "a date YYYY-MM-DD is expected"
	switch t.Kind {
	case Time:
		layout, want = "15:04:05.999999", "a time HH:MM:SS[.ffffff] is expected"
	case Timestamp:
		layout, want = "2006-01-02T15:04:05.999999", "a timestamp YYYY-MM-DDTHH:MM:SS[.ffffff] without a zone is expected"
	case TimestampTZ:
		layout, want = "2006-01-02T15:04:05.999999Z07:00", "an RFC 3339 timestamp with its zone is expected"
	}
	v, err := time.Parse(layout, s)
	if err != nil && t.Kind == Timestamp {
		v, err = time.Parse("2006-01-02 15:04:05.999999", s)
	}
	if err != nil {
		return nil, errs.New(errs.Invalid, "%s", want)
	}
	if v.Nanosecond()%1000 != 0 {
		return nil, errs.New(errs.Invalid, "it has more than microseconds")
	}
	switch t.Kind {
	case Date:
		return int32(v.Unix() / 86400), nil
	case Time:
		return v.Sub(time.Date(v.Year(), v.Month(), v.Day(), 0, 0, 0, 0, time.UTC)).Microseconds(), nil
	}
	return v.UnixMicro(), nil
}

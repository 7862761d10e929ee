package jsonwire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"sort"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Append appends the JSON form of m to dst.
func Append(dst []byte, m proto.Message) ([]byte, error) {
	return appendMessage(dst, m.ProtoReflect())
}

func appendMessage(dst []byte, m protoreflect.Message) ([]byte, error) {
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		return appendWellKnown(dst, m)
	}
	dst = append(dst, '{')
	fields := m.Descriptor().Fields()
	first := true
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !m.Has(f) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendString(dst, string(f.Name()))
		dst = append(dst, ':')
		var err error
		if dst, err = appendField(dst, f, m.Get(f)); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendWellKnown leaves the special forms (Timestamp, Value, ...) to protojson
// and takes out the spaces that it varies at random.
func appendWellKnown(dst []byte, m protoreflect.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m.Interface())
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(dst)
	if err := json.Compact(buf, b); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func appendField(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch {
	case f.IsMap():
		return appendMap(dst, f.MapValue(), v.Map())
	case f.IsList():
		return appendList(dst, f, v.List())
	default:
		return appendValue(dst, f, v)
	}
}

func appendList(dst []byte, f protoreflect.FieldDescriptor, l protoreflect.List) ([]byte, error) {
	dst = append(dst, '[')
	for i := range l.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, f, l.Get(i)); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func appendMap(dst []byte, value protoreflect.FieldDescriptor, m protoreflect.Map) ([]byte, error) {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	for k := range m.Range {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keyLess(keys[i], keys[j]) })
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, k.String())
		dst = append(dst, ':')
		var err error
		if dst, err = appendValue(dst, value, m.Get(k)); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// keyLess orders integer keys by number, all else by text.
func keyLess(a, b protoreflect.MapKey) bool {
	switch x := a.Interface().(type) {
	case int32:
		return x < b.Interface().(int32)
	case int64:
		return x < b.Interface().(int64)
	default:
		return a.String() < b.String()
	}
}

func appendValue(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) ([]byte, error) {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool()), nil
	case protoreflect.StringKind:
		return appendString(dst, v.String()), nil
	case protoreflect.BytesKind:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v.Bytes())
		return append(dst, '"'), nil
	case protoreflect.EnumKind:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return appendString(dst, string(d.Name())), nil
		}
		return strconv.AppendInt(dst, int64(v.Enum()), 10), nil
	case protoreflect.FloatKind:
		return appendFloat(dst, v.Float(), 32), nil
	case protoreflect.DoubleKind:
		return appendFloat(dst, v.Float(), 64), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return appendMessage(dst, v.Message())
	default: // the signed integers
		return strconv.AppendInt(dst, v.Int(), 10), nil
	}
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	default:
		return strconv.AppendFloat(dst, f, 'g', -1, bits)
	}
}

// appendString writes a JSON string without the escapes that only HTML needs.
func appendString(dst []byte, s string) []byte {
	buf := bytes.NewBuffer(dst)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil { // a string always encodes
		return append(dst, `""`...)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

package restfront

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/internal/errs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MaxBodyBytes bounds the body of a control request. The longest sensible one, a
// table of some thousand columns, is far below.
const MaxBodyBytes = 4 << 20

// message builds the method's request from body, path and query.
func (r *Route) message(req *http.Request) (proto.Message, error) {
	msg := r.request.New()
	if err := r.readBody(req, msg.Interface()); err != nil {
		return nil, err
	}
	for _, f := range r.vars {
		text := req.PathValue(string(f.Name()))
		want, err := parseScalar(f, text)
		if err != nil {
			return nil, err
		}
		if msg.Has(f) && !msg.Get(f).Equal(want) {
			return nil, errs.New(errs.Invalid, "field %q of the body differs from the path, which says %q", f.Name(), text)
		}
		msg.Set(f, want)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, "parse query", err)
	}
	for name, values := range query {
		if err := r.setParameter(msg, name, values); err != nil {
			return nil, err
		}
	}
	return msg.Interface(), nil
}

func (r *Route) readBody(req *http.Request, msg proto.Message) error {
	if enc := req.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return &statusError{http.StatusUnsupportedMediaType,
			errs.New(errs.Unsupported, "Content-Encoding %q is not accepted on control routes; send the body as it is", enc)}
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, MaxBodyBytes+1))
	if err != nil {
		return errs.Wrap(errs.Canceled, "read request body", err)
	}
	if len(body) > MaxBodyBytes {
		return errs.New(errs.TooLarge, "request body is over the limit of %d bytes for control requests", MaxBodyBytes)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if !r.takesBody {
		return errs.New(errs.Invalid, "%s %s takes no body", r.Method, r.Path)
	}
	if ct := req.Header.Get("Content-Type"); ct != "" {
		if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/json" {
			return &statusError{http.StatusUnsupportedMediaType,
				errs.New(errs.Unsupported, "Content-Type %q is not accepted; send application/json", ct)}
		}
	}
	if err := jsonwire.Unmarshal(body, msg); err != nil {
		return errs.Wrap(errs.Invalid, "read request body", err)
	}
	return nil
}

// statusError is an error whose HTTP status says more than its class does.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

// setParameter sets one field from the query; a field in the path may not be
// given again.
func (r *Route) setParameter(msg protoreflect.Message, name string, values []string) error {
	f := msg.Descriptor().Fields().ByName(protoreflect.Name(name))
	if f == nil || !settable(f) || slices.Contains(r.vars, f) {
		return errs.New(errs.Invalid, "unknown query parameter %q; %s takes %s", name, r.Path, r.parameters())
	}
	if !f.IsList() && len(values) > 1 {
		return errs.New(errs.Invalid, "query parameter %q is given %d times", name, len(values))
	}
	for _, text := range values {
		v, err := parseScalar(f, text)
		if err != nil {
			return err
		}
		if f.IsList() {
			msg.Mutable(f).List().Append(v)
		} else {
			msg.Set(f, v)
		}
	}
	return nil
}

// parameters lists what may stand in the query, for error messages.
func (r *Route) parameters() string {
	fields := r.request.Descriptor().Fields()
	out := ""
	for i := range fields.Len() {
		if f := fields.Get(i); settable(f) && !slices.Contains(r.vars, f) {
			if out != "" {
				out += ", "
			}
			out += string(f.Name())
		}
	}
	if out == "" {
		return "none"
	}
	return out
}

// settable reports whether a field can be given as text.
func settable(f protoreflect.FieldDescriptor) bool {
	if f.IsMap() {
		return false
	}
	switch f.Kind() {
	case protoreflect.BoolKind, protoreflect.StringKind, protoreflect.Int32Kind, protoreflect.Int64Kind:
		return true
	}
	return false
}

func parseScalar(f protoreflect.FieldDescriptor, text string) (protoreflect.Value, error) {
	var err error
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text), nil
	case protoreflect.BoolKind:
		if text == "" { // a bare flag: ?cascade
			return protoreflect.ValueOfBool(true), nil
		}
		var b bool
		if b, err = strconv.ParseBool(text); err == nil {
			return protoreflect.ValueOfBool(b), nil
		}
	case protoreflect.Int32Kind:
		var n int64
		if n, err = strconv.ParseInt(text, 10, 32); err == nil {
			return protoreflect.ValueOfInt32(int32(n)), nil
		}
	case protoreflect.Int64Kind:
		var n int64
		if n, err = strconv.ParseInt(text, 10, 64); err == nil {
			return protoreflect.ValueOfInt64(n), nil
		}
	}
	var numErr *strconv.NumError
	if errors.As(err, &numErr) {
		err = numErr.Err
	}
	return protoreflect.Value{}, errs.New(errs.Invalid, "%s %q is no %s: %v", f.Name(), text, f.Kind(), err)
}

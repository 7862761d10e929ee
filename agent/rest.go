package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/internal/errs"
)

// method is one unary control method, as the REST bridge calls it.
type method struct {
	newRequest func() proto.Message
	call       func(context.Context, proto.Message) (proto.Message, error)
}

// unary adapts a typed method.
func unary[Req, Res any, PReq interface {
	*Req
	proto.Message
}, PRes interface {
	*Res
	proto.Message
}](f func(context.Context, PReq) (PRes, error)) method {
	return method{
		newRequest: func() proto.Message { return PReq(new(Req)) },
		call: func(ctx context.Context, m proto.Message) (proto.Message, error) {
			res, err := f(ctx, m.(PReq))
			if err != nil {
				return nil, err
			}
			return res, nil
		},
	}
}

// registerREST mounts the REST route of each method that has a
// google.api.http annotation, so that REST and Connect share one definition.
func registerREST(mux *http.ServeMux, service protoreflect.ServiceDescriptor, methods map[string]method) {
	all := service.Methods()
	for i := range all.Len() {
		m := all.Get(i)
		impl, ok := methods[string(m.Name())]
		rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			continue
		}
		verb, path := rulePath(rule)
		if verb == "" {
			continue
		}
		mux.Handle(verb+" "+path, &restRoute{rule: rule, path: path, impl: impl})
	}
}

func rulePath(r *annotations.HttpRule) (verb, path string) {
	switch p := r.Pattern.(type) {
	case *annotations.HttpRule_Get:
		return http.MethodGet, p.Get
	case *annotations.HttpRule_Post:
		return http.MethodPost, p.Post
	case *annotations.HttpRule_Patch:
		return http.MethodPatch, p.Patch
	case *annotations.HttpRule_Delete:
		return http.MethodDelete, p.Delete
	case *annotations.HttpRule_Put:
		return http.MethodPut, p.Put
	}
	return "", ""
}

// restRoute turns path, query and JSON body into a request message.
type restRoute struct {
	rule *annotations.HttpRule
	path string
	impl method
}

const (
	maxControlBytes    = 4 << 20          // a control request's body
	controlBodyTimeout = 30 * time.Second // longest time for it to arrive
)

// ServeHTTP implements http.Handler.
func (r *restRoute) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	msg := r.impl.newRequest()
	arrived := bodyWithin(w, controlBodyTimeout)
	err := r.fill(msg, req)
	arrived()
	if err != nil {
		writeError(w, err)
		return
	}
	res, err := r.impl.call(req.Context(), msg)
	if err != nil {
		writeError(w, err)
		return
	}
	body, err := jsonwire.Codec{}.Marshal(res)
	if err != nil {
		writeError(w, errs.Wrap(errs.Internal, "encode answer", err))
		return
	}
	writeJSON(w, http.StatusOK, json.RawMessage(body))
}

func (r *restRoute) fill(msg proto.Message, req *http.Request) error {
	if r.rule.Body == "*" {
		if err := readControlBody(msg, req); err != nil {
			return err
		}
	}
	fields := map[string]any{}
	refl := msg.ProtoReflect().Descriptor().Fields()
	query, err := queryOf(req)
	if err != nil {
		return err
	}
	for name, values := range query {
		fd := refl.ByTextName(name)
		switch {
		case fd == nil || fd.IsMap() || fd.Message() != nil || r.inPath(name):
			return errs.New(errs.Invalid, "query parameter %q is not known on this route", name)
		case msg.ProtoReflect().Has(fd):
			return errs.New(errs.Invalid, "%s is in the query and in the body: give it once", name)
		}
		value, err := queryValue(fd, values)
		if err != nil {
			return err
		}
		fields[name] = value
	}
	for _, part := range strings.Split(r.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			fields[name] = req.PathValue(name)
			if fd := refl.ByTextName(name); msg.ProtoReflect().Has(fd) && msg.ProtoReflect().Get(fd).String() != req.PathValue(name) {
				return errs.New(errs.Invalid, "the path names %s %q and the body %q: leave it out of the body", name, req.PathValue(name), msg.ProtoReflect().Get(fd).String())
			}
		}
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return errs.Wrap(errs.Invalid, "read request", err)
	}
	overlay := msg.ProtoReflect().New().Interface()
	if err := jsonwire.Unmarshal(raw, overlay); err != nil {
		return errs.Wrap(errs.Invalid, "read request", err)
	}
	proto.Merge(msg, overlay)
	return nil
}

// inPath reports whether a field is given by the route's path.
func (r *restRoute) inPath(name string) bool { return strings.Contains(r.path, "{"+name+"}") }

func readControlBody(msg proto.Message, req *http.Request) error {
	if ct := req.Header.Get("Content-Type"); ct != "" {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || (media != "application/json" && media != "application/x-www-form-urlencoded") {
			return unsupportedMedia(http.StatusUnsupportedMediaType, []string{"application/json"}, "content type %q: this route takes application/json", ct)
		}
	}
	if enc := req.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return unsupportedMedia(http.StatusUnsupportedMediaType, []string{"identity"}, "content encoding %q: this route takes plain bodies", enc)
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxControlBytes+1))
	switch {
	case err != nil:
		return readBodyError(err)
	case len(body) > maxControlBytes:
		e := errs.New(errs.TooLarge, "the body is larger than %d bytes, the limit of control requests", maxControlBytes)
		e.Details = []any{map[string]any{"limit": maxControlBytes}}
		return e
	}
	if err := jsonwire.Unmarshal(bytes.TrimSpace(body), msg); err != nil {
		return errs.Wrap(errs.Invalid, "read JSON body", err)
	}
	return nil
}

// readBodyError classifies an error of the connection while a body arrives.
func readBodyError(err error) error {
	if errs.ClassOf(err) != errs.Internal {
		return err
	}
	return errs.Wrap(errs.Invalid, "read body", err)
}

// queryValue returns a JSON value for a field out of its query parameters.
func queryValue(fd protoreflect.FieldDescriptor, values []string) (any, error) {
	if fd.IsList() {
		return values, nil
	}
	if len(values) != 1 {
		return nil, errs.New(errs.Invalid, "query parameter %q is given %d times", fd.Name(), len(values))
	}
	if fd.Kind() != protoreflect.BoolKind {
		return values[0], nil
	}
	switch values[0] {
	case "true", "1", "":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return nil, errs.New(errs.Invalid, "query parameter %q is %q: must be true or false", fd.Name(), values[0])
}

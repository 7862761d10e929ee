package restfront

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Route is one REST route of a Connect method. It is an http.Handler for
// requests that match Method and Path.
type Route struct {
	Method string // HTTP verb
	Path   string // as http.ServeMux has it: "/v1/databases/{database}"

	procedure string // "/firn.v1.CatalogService/DropDatabase"
	connect   http.Handler
	request   protoreflect.MessageType
	vars      []protoreflect.FieldDescriptor // one for each path variable
	takesBody bool
}

// Pattern is what to register the route under: "DELETE /v1/databases/{database}".
func (r *Route) Pattern() string { return r.Method + " " + r.Path }

// Routes returns the routes of a Connect service, in the order of its methods. It
// takes what a generated constructor returns:
//
//	routes, err := restfront.Routes(firnv1connect.NewCatalogServiceHandler(impl, opts...))
//
// The handler must speak JSON with package jsonwire. A rule that it cannot serve
// is an error.
func Routes(servicePath string, h http.Handler) ([]*Route, error) {
	name := protoreflect.FullName(strings.Trim(servicePath, "/"))
	desc, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		return nil, fmt.Errorf("find service %s: %w", name, err)
	}
	service, ok := desc.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("find service %s: it is not a service", name)
	}
	var out []*Route
	methods := service.Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
		if !ok || rule == nil {
			continue
		}
		r, err := newRoute(m, rule, h)
		if err != nil {
			return nil, fmt.Errorf("make route of %s: %w", m.FullName(), err)
		}
		out = append(out, r)
	}
	return out, nil
}

var pathVariable = regexp.MustCompile(`\{([^}]*)\}`)

func newRoute(m protoreflect.MethodDescriptor, rule *annotations.HttpRule, h http.Handler) (*Route, error) {
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return nil, fmt.Errorf("a streaming method has no REST form")
	}
	if rule.GetBody() != "" && rule.GetBody() != "*" {
		return nil, fmt.Errorf("body %q: only \"*\" and none are served", rule.GetBody())
	}
	request, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, err
	}
	r := &Route{
		procedure: fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()),
		connect:   h, request: request, takesBody: rule.GetBody() == "*",
	}
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		r.Method, r.Path = http.MethodGet, p.Get
	case *annotations.HttpRule_Put:
		r.Method, r.Path = http.MethodPut, p.Put
	case *annotations.HttpRule_Post:
		r.Method, r.Path = http.MethodPost, p.Post
	case *annotations.HttpRule_Delete:
		r.Method, r.Path = http.MethodDelete, p.Delete
	case *annotations.HttpRule_Patch:
		r.Method, r.Path = http.MethodPatch, p.Patch
	default:
		return nil, fmt.Errorf("pattern %T is not served", p)
	}
	for _, v := range pathVariable.FindAllStringSubmatch(r.Path, -1) {
		f := m.Input().Fields().ByName(protoreflect.Name(v[1]))
		if f == nil || !settable(f) || f.IsList() {
			return nil, fmt.Errorf("path variable %q is no scalar field of %s", v[1], m.Input().FullName())
		}
		r.vars = append(r.vars, f)
	}
	return r, nil
}

package api_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gopkg.in/yaml.v3"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

type document = map[string]any

func openAPI(t *testing.T) document {
	t.Helper()
	raw, err := os.ReadFile("../docs/openapi.yaml")
	require.NoError(t, err)
	var doc document
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	return doc
}

// at walks maps by key and follows a $ref that it meets.
func at(t *testing.T, root document, v any, path ...string) document {
	t.Helper()
	for i := 0; ; i++ {
		m, ok := v.(document)
		require.True(t, ok, "%v: %v is no map", path, v)
		for m["$ref"] != nil {
			var target any = root
			for _, key := range strings.Split(strings.TrimPrefix(m["$ref"].(string), "#/"), "/") {
				target = target.(document)[key]
			}
			m, ok = target.(document)
			require.True(t, ok, "%v does not resolve", m["$ref"])
		}
		if i == len(path) {
			return m
		}
		v = m[path[i]]
		require.NotNil(t, v, "%s is missing in %v", path[i], path)
	}
}

func fieldNames(m protoreflect.MessageDescriptor) (out []string) {
	for i := range m.Fields().Len() {
		out = append(out, string(m.Fields().Get(i).Name()))
	}
	slices.Sort(out)
	return out
}

func keys(m document) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func route(rule *annotations.HttpRule) (verb, path string) {
	switch p := rule.GetPattern().(type) {
	case *annotations.HttpRule_Get:
		return "get", p.Get
	case *annotations.HttpRule_Post:
		return "post", p.Post
	case *annotations.HttpRule_Patch:
		return "patch", p.Patch
	case *annotations.HttpRule_Delete:
		return "delete", p.Delete
	}
	return "", ""
}

// Names in the document are those of the definitions: whatever is added to a
// message or renamed must show there.
func TestOpenAPIDescribesEveryControlRouteAsItIs(t *testing.T) {
	doc := openAPI(t)
	for _, file := range []protoreflect.FileDescriptor{firnv1.File_firn_v1_catalog_proto, firnv1.File_firn_v1_cluster_proto, firnv1.File_firn_v1_data_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				rule, ok := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				if !ok || rule == nil {
					continue
				}
				verb, path := route(rule)
				op := at(t, doc, doc, "paths", path, verb)
				if m.Parent().Name() != "DataService" { // rows have routes and names of their own
					require.Equal(t, string(m.Name()), op["operationId"], path)
				}
				answer := at(t, doc, op, "responses", "200", "content", "application/json", "schema")
				if m.Output().Fields().Len() > 0 {
					require.Equal(t, fieldNames(m.Output()), keys(at(t, doc, answer, "properties")), "%s: answer", m.Name())
				}
				checkRequest(t, doc, op, m, path)
			}
		}
	}
}

func checkRequest(t *testing.T, doc, op document, m protoreflect.MethodDescriptor, path string) {
	t.Helper()
	var named []string
	if body, ok := op["requestBody"]; ok {
		named = keys(at(t, doc, body, "content", "application/json", "schema", "properties"))
	}
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		named = append(named, at(t, doc, p)["name"].(string))
	}
	for _, name := range fieldNames(m.Input()) {
		if !strings.Contains(path, "{"+name+"}") {
			require.Contains(t, named, name, "%s: request", m.Name())
		}
	}
	for _, name := range named {
		require.Contains(t, fieldNames(m.Input()), name, "%s: request", m.Name())
	}
}

func TestOpenAPISchemasOfMessagesNameEveryField(t *testing.T) {
	doc := openAPI(t)
	for name, m := range map[string]proto.Message{
		"Table": &firnv1.Table{}, "Column": &firnv1.Column{}, "TableChange": &firnv1.TableChange{}, "LakeSnapshot": &firnv1.LakeSnapshot{},
		"Producer": &firnv1.Producer{}, "Agent": &firnv1.Agent{}, "AppendAnswer": &firnv1.AppendResponse{}, "RowError": &firnv1.RowError{},
	} {
		schema := at(t, doc, doc, "components", "schemas", name, "properties")
		require.Equal(t, fieldNames(m.ProtoReflect().Descriptor()), keys(schema), name)
	}
}

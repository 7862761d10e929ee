package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/firn-data/firn/metastore"
)

func apiDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDocumentationListsEveryPropertyWithItsDefault(t *testing.T) {
	doc := apiDoc(t)
	for _, p := range metastore.Properties {
		def := "`" + p.Default + "`"
		if p.Default == "" {
			def = "unset"
		}
		if row := fmt.Sprintf("| `%s` | %s |", p.Name, def); !strings.Contains(doc, row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
	}
}

func TestTheDocumentationListsEveryStatusAndParameter(t *testing.T) {
	doc := apiDoc(t)
	for class, f := range faces {
		found := false
		for _, line := range strings.Split(doc, "\n") {
			found = found || strings.HasPrefix(line, "| ") && strings.Contains(line, fmt.Sprint(f.status)) && strings.Contains(line, "`"+f.code.String()+"`")
		}
		if !found {
			t.Errorf("%s: docs/api.md has no row with %d and %s", class, f.status, f.code)
		}
	}
	for name := range rowsParams {
		if !strings.Contains(doc, "`"+name) {
			t.Errorf("docs/api.md does not name the parameter %s", name)
		}
	}
}

package segments_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// golden is a segment as version 1 of the format wrote it, and its values.
type golden struct {
	Schema  *segments.Schema
	Rows    int64
	Columns []segments.ColumnChunk
	Body    []byte
	Values  [][]string // by column
}

func texts(rec arrow.RecordBatch) [][]string {
	out := make([][]string, rec.NumCols())
	for i, c := range rec.Columns() {
		out[i] = make([]string, c.Len())
		for row := range out[i] {
			out[i][row] = segtest.Format(c, row)
		}
	}
	return out
}

// writeGolden makes a golden file that does not exist yet; one that does is
// never rewritten, because segments like it stand in stores.
func writeGolden(t *testing.T, path string, c segments.Codec) {
	t.Helper()
	s := segtest.AllTypes()
	rec := segtest.Batch(segtest.NewRand(42), s, 24, segtest.Options{NullPercent: 20})
	e, err := segments.Encode(rec, s, c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(golden{s, e.Rows, e.Columns, e.Body, texts(rec)}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGoldenSegmentsOfVersion1(t *testing.T) {
	for _, c := range codecs {
		path := filepath.Join("testdata", "segment-v1-"+c.String()+".json")
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && os.Getenv("FIRN_WRITE_GOLDEN") != "" {
			writeGolden(t, path, c)
			b, err = os.ReadFile(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		var g golden
		if err := json.Unmarshal(b, &g); err != nil {
			t.Fatal(err)
		}
		rec, err := segments.Decode(g.Schema, g.Columns, g.Rows, nil, (&body{b: g.Body}).read)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if got := texts(rec); !reflect.DeepEqual(got, g.Values) {
			t.Errorf("%s: got\n%q\nwant\n%q", path, got, g.Values)
		}
		e, err := segments.Encode(rec, g.Schema, c)
		if err != nil {
			t.Fatal(err)
		}
		for i, col := range e.Columns {
			if want := g.Columns[i]; !reflect.DeepEqual(col.Nodes, want.Nodes) || !reflect.DeepEqual(col.Stats, want.Stats) {
				t.Errorf("%s: column %d is described as %+v, want %+v", path, i, col, want)
			}
		}
		// A compressor may find shorter bytes in a later release; the layout may not change.
		if c == segments.CodecNone && (string(e.Body) != string(g.Body) || !reflect.DeepEqual(e.Columns, g.Columns)) {
			t.Errorf("%s: the encoding changed", path)
		}
	}
}

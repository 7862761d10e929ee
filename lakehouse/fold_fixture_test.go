package lakehouse

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	iceio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// testScale returns few, or many when FIRN_LAKE_LONG is set.
func testScale(few, many int) int {
	if os.Getenv("FIRN_LAKE_LONG") != "" {
		return many
	}
	return few
}

// foldTable is a table that a test folds rows into. It remembers every row.
type foldTable struct {
	t     testing.TB
	store objstore.Store
	lake  *Lake
	def   TableDef
	ends  map[int32]int64
	rows  []arrow.RecordBatch
}

func quickOptions() Options {
	return Options{
		Location: "mem://test",
		Create:   objstore.CreatePolicy{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }},
	}
}

func newFoldTable(t testing.TB, store objstore.Store, o Options, schema *segments.Schema, shape func(*TableDef)) *foldTable {
	t.Helper()
	x := &foldTable{t: t, store: store, lake: Open(store, o), ends: map[int32]int64{}, def: TableDef{
		ID: 7, UUID: uuid.NewString(), Version: 1, Database: "db", Name: "t", Prefix: "lake/db/t-7",
		Schemas: []*segments.Schema{schema}, CurrentSchema: schema.ID, LastFieldID: schema.MaxFieldID(), Buckets: 1,
		Properties: map[string]string{},
	}}
	if shape != nil {
		shape(&x.def)
	}
	if err := x.lake.CreateTable(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *foldTable) load() *Snapshot {
	x.t.Helper()
	s, err := x.lake.Load(context.Background(), x.def)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// input makes a fold of batches into one bucket from where the lake is.
func (x *foldTable) input(bucket int32, at int64, batches ...arrow.RecordBatch) FoldInput {
	s := x.load()
	return FoldInput{Buckets: []BucketFold{bucketFold(bucket, s.Offset(bucket), s.Generation(bucket), at, batches...)}}
}

func bucketFold(bucket int32, from int64, generation uint64, at int64, batches ...arrow.RecordBatch) BucketFold {
	next, i := from, 0
	var n int64
	for _, b := range batches {
		n += b.NumRows()
	}
	return BucketFold{Bucket: bucket, From: from, To: from + n, Generation: generation, Next: func(context.Context) (FoldBatch, error) {
		if i == len(batches) {
			return FoldBatch{}, io.EOF
		}
		b := FoldBatch{Rows: batches[i], BaseOffset: next, Timestamp: at + int64(i)}
		b.Rows.Retain()
		next += b.Rows.NumRows()
		i++
		return b, nil
	}}
}

// fold folds and remembers.
func (x *foldTable) fold(bucket int32, batches ...arrow.RecordBatch) FoldResult {
	x.t.Helper()
	r, err := x.lake.Fold(context.Background(), x.def, x.input(bucket, 1000, batches...))
	if err != nil {
		x.t.Fatal(err)
	}
	x.rows = append(x.rows, batches...)
	return r
}

// check compares the rows of the newest snapshot, as iceberg-go reads them, with
// all that were folded, and the snapshot's counts with the rows.
func (x *foldTable) check() {
	x.t.Helper()
	s := x.load()
	want := rowKeys(x.rows...)
	got := rowKeys(x.scan(s)...)
	if len(want) != len(got) {
		x.t.Fatalf("iceberg scan has %d rows, folded were %d", len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			x.t.Fatalf("row differs:\nfolded  %s\niceberg %s", want[i], got[i])
		}
	}
	if s.Rows != int64(len(want)) {
		x.t.Fatalf("snapshot summary counts %d rows of %d", s.Rows, len(want))
	}
	files, err := s.Files(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	var rows, size int64
	for _, f := range files {
		rows += f.Rows
		size += f.Size
	}
	if rows != s.Rows || int64(len(files)) != s.FileCount || size != s.Bytes {
		x.t.Fatalf("files hold %d rows in %d files of %d bytes; summary says %d, %d, %d", rows, len(files), size, s.Rows, s.FileCount, s.Bytes)
	}
}

// planned returns how many files iceberg-go would read.
func (x *foldTable) planned(s *Snapshot, opts ...table.ScanOption) int {
	x.t.Helper()
	tasks, err := x.icebergScan(s, opts...).PlanFiles(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	return len(tasks)
}

func (x *foldTable) icebergScan(s *Snapshot, opts ...table.ScanOption) *table.Scan {
	tbl := table.New(table.Identifier{"db", "t"}, s.Metadata, s.Location(), func(context.Context) (iceio.IO, error) {
		return storeIO{x.lake}, nil
	}, nil)
	if s.ID != 0 {
		opts = append(opts, table.WithSnapshotID(s.ID))
	}
	return tbl.Scan(opts...)
}

// scan reads a snapshot with iceberg-go's own scanner.
func (x *foldTable) scan(s *Snapshot, opts ...table.ScanOption) []arrow.RecordBatch {
	x.t.Helper()
	_, it, err := x.icebergScan(s, opts...).ToArrowRecords(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	var out []arrow.RecordBatch
	for rec, err := range it {
		if err != nil {
			x.t.Fatal(err)
		}
		out = append(out, rec)
	}
	return out
}

// rowKeys returns each row as text, sorted.
func rowKeys(recs ...arrow.RecordBatch) []string {
	var out []string
	for _, rec := range recs {
		for i := range int(rec.NumRows()) {
			var b strings.Builder
			for c, a := range rec.Columns() {
				fmt.Fprintf(&b, "%s=%s; ", rec.ColumnName(c), valueKey(a, i))
			}
			out = append(out, b.String())
		}
	}
	slices.Sort(out)
	return out
}

func valueKey(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return "NULL"
	}
	switch a := a.(type) {
	case array.ExtensionArray:
		return valueKey(a.Storage(), i)
	case *array.Struct:
		var parts []string
		for c := range a.NumField() {
			parts = append(parts, valueKey(a.Field(c), i))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		var parts []string
		for j := from; j < to; j++ {
			parts = append(parts, valueKey(a.ListValues(), int(j)))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case *array.Timestamp:
		return fmt.Sprint(int64(a.Value(i)))
	}
	return a.ValueStr(i)
}

// storeIO lets iceberg-go read through a Lake's store.
type storeIO struct{ lake *Lake }

type storeFile struct {
	*bytes.Reader
	info storeInfo
}

type storeInfo struct {
	name string
	size int64
}

func (i storeInfo) Name() string       { return i.name }
func (i storeInfo) Size() int64        { return i.size }
func (i storeInfo) Mode() fs.FileMode  { return 0o444 }
func (i storeInfo) ModTime() time.Time { return time.Time{} }
func (i storeInfo) IsDir() bool        { return false }
func (i storeInfo) Sys() any           { return nil }

func (f storeFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f storeFile) Close() error               { return nil }

func (s storeIO) Open(name string) (iceio.File, error) {
	body, err := s.lake.fetch(context.Background(), name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return storeFile{bytes.NewReader(body), storeInfo{name, int64(len(body))}}, nil
}

func (s storeIO) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
}

// batchOf returns n random rows of a schema, from a seed.
func batchOf(s *segments.Schema, n int, seed uint64) arrow.RecordBatch {
	return segtest.RandomBatch(segtest.NewRand(seed), s, n)
}

// keysUnder lists the store.
func (x *foldTable) keysUnder(prefix string) []string {
	x.t.Helper()
	var out []string
	for info, err := range x.store.List(context.Background(), prefix, "") {
		if err != nil {
			x.t.Fatal(err)
		}
		out = append(out, info.Key)
	}
	return out
}

package lakehouse

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// evolve adds a schema version to the definition.
func (x *foldTable) evolve(next *segments.Schema, err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
	last := x.def.Schemas[len(x.def.Schemas)-1].ID
	copied := *next
	copied.ID = last + 1
	x.def.Schemas = append(append([]*segments.Schema{}, x.def.Schemas...), &copied)
	x.def.CurrentSchema = copied.ID
	x.def.LastFieldID = max(x.def.LastFieldID, copied.MaxFieldID())
	x.def.Version++
	// What was folded reads as the new schema says.
	for i, r := range x.rows {
		from := x.def.Schemas[len(x.def.Schemas)-2]
		if x.rows[i], err = segments.Project(r, from, &copied); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *foldTable) current() *segments.Schema { return x.def.Schemas[len(x.def.Schemas)-1] }

func TestSchemaEvolutionIsFollowedByFieldID(t *testing.T) {
	s := segtest.Schema("id int required", "name string", "amount float", "gone string")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Properties[PropFormatVersion] = "3" })
	x.fold(0, batchOf(s, 20, 1))
	step := func(next *segments.Schema, err error) {
		t.Helper()
		x.evolve(next, err)
		x.fold(0, batchOf(x.current(), 20, uint64(len(x.def.Schemas))))
		x.check()
	}
	add := func(f segments.Field) {
		t.Helper()
		next, last, err := segments.AddColumn(x.current(), x.def.LastFieldID, f, "")
		x.def.LastFieldID = last
		step(next, err)
	}
	add(segments.Field{Name: "note", Type: segtest.MustType("string"), Default: json.RawMessage(`"none"`)})
	step(segments.WidenColumn(x.current(), "id", segtest.MustType("long")))
	step(segments.RenameColumn(x.current(), "name", "title"))
	step(segments.DropColumn(x.current(), "gone"))
	add(segments.Field{Name: "gone", Type: segtest.MustType("int")})
	add(segments.Field{Name: "cost", Type: segtest.MustType("decimal(9,2)"), Required: true, Default: json.RawMessage(`"1.50"`)})
	add(segments.Field{Name: "u", Type: segtest.MustType("uuid"), Default: json.RawMessage(`"f79c3e09-677c-4bbd-a479-3f349cb785e7"`)})
	step(segments.WidenColumn(x.current(), "amount", segtest.MustType("double")))
	step(segments.WidenColumn(x.current(), "cost", segtest.MustType("decimal(18,2)")))
	step(segments.MakeOptional(x.current(), "id"))
	step(segments.MoveColumn(x.current(), "title", ""))
	meta := x.load().Metadata
	if got := len(meta.Schemas()); got != len(x.def.Schemas) {
		t.Errorf("%d iceberg schemas for %d", got, len(x.def.Schemas))
	}
	for i, sc := range meta.Schemas() {
		if int32(sc.ID) != x.def.Schemas[i].ID {
			t.Errorf("iceberg schema %d has id %d", i, sc.ID)
		}
	}
	if _, err := x.lake.Compact(context.Background(), x.def, CompactOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	x.check()
}

func TestSchemaThatReturnsToAnOlderOneSharesItsIcebergID(t *testing.T) {
	s := segtest.Schema("id long")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	next, last, err := segments.AddColumn(s, x.def.LastFieldID, segments.Field{Name: "x", Type: segtest.MustType("int")}, "")
	x.def.LastFieldID = last
	x.evolve(next, err)
	x.fold(0, batchOf(x.current(), 5, 1))
	x.evolve(segments.DropColumn(x.current(), "x"))
	x.fold(0, batchOf(x.current(), 5, 2))
	x.check()
	if n := x.load().Metadata.CurrentSchema().NumFields(); n != 1 {
		t.Errorf("current iceberg schema has %d fields", n)
	}
}

func TestRequiredColumnAddedLaterIsOptionalInVersion2(t *testing.T) {
	s := segtest.Schema("id long required")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	next, _, err := segments.AddColumn(s, x.def.LastFieldID,
		segments.Field{Name: "x", Type: segtest.MustType("int"), Required: true, Default: json.RawMessage("7")}, "")
	x.evolve(next, err)
	if err := x.lake.SyncSchema(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
	sc := x.load().Metadata.CurrentSchema()
	if !sc.Field(0).Required || sc.Field(1).Required || sc.Field(1).InitialDefault != nil {
		t.Errorf("schema %s", sc)
	}
}

func TestSyncWritesOnlyWhatChangedAndNeverGoesBack(t *testing.T) {
	s := segtest.Schema("id long", "ts timestamptz")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	ctx := context.Background()
	x.fold(0, batchOf(s, 5, 1))
	before := x.load().MetadataVersion
	x.def.Version = 7
	if err := x.lake.SyncSchema(ctx, x.def); err != nil || x.load().MetadataVersion != before {
		t.Fatalf("a definition that says the same wrote version %d: %v", x.load().MetadataVersion, err)
	}
	old := x.def
	x.def.Version, x.def.Properties = 8, map[string]string{"note": "n"}
	partitionBy(t, "day(ts)")(&x.def)
	if err := x.lake.SyncSchema(ctx, x.def); err != nil || x.load().MetadataVersion != before+1 {
		t.Fatalf("version %d after a change: %v", x.load().MetadataVersion, err)
	}
	if v := x.load().Metadata.Properties()["firn.table.note"]; v != "n" {
		t.Errorf("property %q", v)
	}
	if err := x.lake.SyncSchema(ctx, old); !errs.Is(err, errs.Conflict) {
		t.Errorf("an old definition: %v", err)
	}
	x.fold(0, batchOf(s, 50, 2))
	x.check()
	x.def.Version, x.def.Partition, x.def.Properties = 9, nil, nil
	x.fold(0, batchOf(s, 5, 3))
	x.check()
	meta := x.load().Metadata
	if _, ok := meta.Properties()["firn.table.note"]; ok {
		t.Error("an unset property is still there")
	}
	if n := len(meta.PartitionSpecs()); n != 2 || meta.DefaultPartitionSpec() != 0 {
		t.Errorf("%d specs, default %d", n, meta.DefaultPartitionSpec())
	}
	if _, err := x.lake.Compact(ctx, x.def, CompactOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	x.check()
}

func TestBirthIsIdempotentAndRefusesAnotherTablesDirectory(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	ctx := context.Background()
	x.fold(0, batchOf(s, 5, 1))
	if err := x.with(x.store, quickOptions()).lake.CreateTable(ctx, x.def); err != nil {
		t.Fatal(err)
	}
	x.check()
	other := x.def
	other.UUID = "11111111-2222-3333-4444-555555555555"
	if err := x.with(x.store, quickOptions()).lake.CreateTable(ctx, other); !errs.Is(err, errs.Conflict) {
		t.Errorf("another table in the directory: %v", err)
	}
	missing := x.def
	missing.Prefix = "lake/db/none-1"
	if _, err := x.lake.Load(ctx, missing); !errs.Is(err, errs.NotFound) {
		t.Errorf("load of nothing: %v", err)
	}
}

func TestBirthRefusesWhatCannotWorkLater(t *testing.T) {
	s := segtest.Schema("id long", "d double", "l list<int>")
	for name, shape := range map[string]func(*TableDef){
		"format":    func(d *TableDef) { d.Properties = map[string]string{PropFormatVersion: "1"} },
		"encoding":  func(d *TableDef) { d.Properties = map[string]string{PropEncoding: "rle"} },
		"retention": func(d *TableDef) { d.Properties = map[string]string{PropRetention: "-3d"} },
		"target":    func(d *TableDef) { d.Properties = map[string]string{PropTargetFileBytes: "0"} },
		"transform": func(d *TableDef) {
			d.Partition = []segments.PartitionField{{SourceID: 2, Name: "x", Transform: "bucket[3]"}}
		},
		"nested": func(d *TableDef) {
			d.Partition = []segments.PartitionField{{SourceID: 3, Name: "x", Transform: "identity"}}
		},
		"column": func(d *TableDef) {
			d.Partition = []segments.PartitionField{{SourceID: 99, Name: "x", Transform: "identity"}}
		},
		"uuid": func(d *TableDef) { d.UUID = "no" },
	} {
		d := TableDef{ID: 1, UUID: "11111111-2222-3333-4444-555555555555", Prefix: "lake/db/t-1", Schemas: []*segments.Schema{s}, CurrentSchema: s.ID, Buckets: 1}
		shape(&d)
		err := Open(objstore.NewMem(), quickOptions()).CreateTable(context.Background(), d)
		if !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEmptyTableIsReadableAndHasNoCurrentSnapshot(t *testing.T) {
	for _, format := range []string{"2", "3"} {
		x := newFoldTable(t, objstore.NewMem(), quickOptions(), idSchema(), func(d *TableDef) { d.Properties[PropFormatVersion] = format })
		x.check()
		body, err := x.load().MetadataJSON(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		if v, ok := m["current-snapshot-id"]; ok && v != nil && v != float64(-1) {
			t.Errorf("v%s: current-snapshot-id %v", format, v)
		}
		if _, ok := m["next-row-id"]; format == "3" && !ok {
			t.Error("v3 without next-row-id")
		}
		if loc, _ := m["location"].(string); !strings.HasPrefix(loc, "mem://test/lake/") {
			t.Errorf("location %q", loc)
		}
	}
}

func TestVersion3SnapshotsNumberTheirRows(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Properties[PropFormatVersion] = "3" })
	for i := range 12 {
		x.fold(0, batchOf(s, 10, uint64(i)))
	}
	meta := x.load().Metadata
	var next int64
	for _, snap := range meta.Snapshots() {
		if snap.FirstRowID == nil || snap.AddedRows == nil || *snap.FirstRowID != next || *snap.AddedRows < 10 {
			t.Fatalf("snapshot %+v after row id %d", snap, next)
		}
		next += *snap.AddedRows
	}
	if meta.NextRowID() != next {
		t.Errorf("next-row-id %d of %d", meta.NextRowID(), next)
	}
	x.check()
}

func TestDefaultsStandInTheMetadataAsTheSpecWritesThem(t *testing.T) {
	s := segtest.Schema("id long")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Properties[PropFormatVersion] = "3" })
	want := map[string]any{}
	for _, c := range []struct {
		typ, def string
		json     any
	}{
		{"date", `"2020-02-29"`, "2020-02-29"},
		{"time", `"01:02:03.000004"`, "01:02:03.000004"},
		{"timestamp", `"2020-02-29T01:02:03.000004"`, "2020-02-29T01:02:03.000004"},
		{"timestamptz", `"2020-02-29T02:02:03.000004+01:00"`, "2020-02-29T01:02:03.000004+00:00"},
		{"decimal(9,2)", `"-0.05"`, "-0.05"},
		{"decimal(9,0)", `"12"`, "12"},
		{"uuid", `"f79c3e09-677c-4bbd-a479-3f349cb785e7"`, "f79c3e09-677c-4bbd-a479-3f349cb785e7"},
		{"binary", `"AAH/"`, "0001FF"},
		{"boolean", `true`, true},
		{"int", `-7`, -7.0},
		{"double", `0.5`, 0.5},
		{"string", `""`, ""},
	} {
		name := sanitise(c.typ)
		next, last, err := segments.AddColumn(x.current(), x.def.LastFieldID,
			segments.Field{Name: name, Type: segtest.MustType(c.typ), Default: json.RawMessage(c.def)}, "")
		x.def.LastFieldID = last
		x.evolve(next, err)
		want[name] = c.json
	}
	if err := x.lake.SyncSchema(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(x.load().Metadata.CurrentSchema())
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Fields []map[string]any }
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Fields[1:] {
		name := f["name"].(string)
		if f["initial-default"] != want[name] || f["write-default"] != want[name] {
			t.Errorf("%s: initial %v, write %v, want %v", name, f["initial-default"], f["write-default"], want[name])
		}
	}
}

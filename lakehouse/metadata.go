package lakehouse

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Properties of the Iceberg table that Firn keeps for itself. The user's table
// properties stand beside them under "firn.table.".
const (
	metaCommit     = "firn.metadata-commit-id" // of this metadata version: makes its bytes its writer's own
	metaSchemaIDs  = "firn.schema-ids"         // JSON: Firn schema id → Iceberg schema id
	metaSchema     = "firn.schema-id"          // current Firn schema id
	metaDefinition = "firn.definition"         // TableDef.Version of the definition that was applied last
	metaUserPrefix = "firn.table."
)

// CreateTable gives a table its Iceberg directory. It is idempotent: when the
// directory exists and has the table's uuid, it succeeds.
func (l *Lake) CreateTable(ctx context.Context, def TableDef) error {
	op := "create lake table " + def.String()
	if err := def.CheckProperties(); err != nil {
		return errs.In(op, err)
	}
	body, err := l.birth(&def)
	if err != nil {
		return errs.In(op, err)
	}
	c, err := objstore.Create(ctx, l.store, def.versionKey(1), body, l.opts.Create)
	if err != nil {
		return errs.In(op, err)
	}
	if !c.Created {
		_, err := l.newest(ctx, def, verifyLater)
		return errs.In(op, err)
	}
	v, err := l.parseVersion(def, 1, body)
	if err != nil {
		return errs.In(op, err)
	}
	l.remember(def, v)
	l.writeHint(ctx, def, 1)
	return nil
}

// birth returns the bytes of v1.metadata.json.
func (l *Lake) birth(def *TableDef) ([]byte, error) {
	if !strings.Contains(l.opts.Location, ":") {
		return nil, errs.New(errs.Invalid, "lake location %q is not an absolute URI", l.opts.Location)
	}
	format, err := def.FormatVersion()
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(def.UUID)
	if err != nil {
		return nil, errs.New(errs.Invalid, "table uuid %q: %v", def.UUID, err)
	}
	b, err := table.NewMetadataBuilder(format)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "build metadata", err)
	}
	if err := applyDefinition(b, nil, def); err != nil {
		return nil, err
	}
	unsorted := table.UnsortedSortOrder // a copy: AddSortOrder writes to what it is given
	err = firstError(
		func() error { return b.SetUUID(id) },
		func() error { return b.SetLoc(l.Location(*def)) },
		func() error { return b.AddSortOrder(&unsorted) },
		func() error { return b.SetDefaultSortOrderID(-1) },
		func() error {
			return b.SetProperties(iceberg.Properties{
				metaCommit:                           l.opts.NewID().String(),
				table.MetadataPreviousVersionsMaxKey: strconv.FormatInt(max(1, l.opts.KeepVersions-1), 10), // those that still stand
				"write.format.default":               "parquet",
				"write.parquet.compression-codec":    "zstd",
				"write.metadata.compression-codec":   "none",
				"write.object-storage.enabled":       "false",
				// Firn alone expires and deletes: an engine's own expiry or orphan
				// removal would not know of files that are being committed.
				"gc.enabled": "false",
			})
		},
	)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "build metadata", err)
	}
	meta, err := b.Build()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "build metadata", err)
	}
	return encodeMetadata(meta)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func encodeMetadata(meta table.Metadata) ([]byte, error) {
	body, err := json.Marshal(meta)
	return body, errs.Wrap(errs.Internal, "encode metadata", err)
}

// definitionState is what the lake's metadata says of the definition it follows.
type definitionState struct {
	version   uint64
	schema    int32
	schemaIDs map[int32]int
}

func definitionOf(meta table.Metadata) (definitionState, error) {
	d := definitionState{schema: -1, schemaIDs: map[int32]int{}}
	if meta == nil {
		return d, nil
	}
	props := meta.Properties()
	d.version, _ = strconv.ParseUint(props[metaDefinition], 10, 64)
	schema, err := strconv.ParseInt(props[metaSchema], 10, 32)
	if err != nil {
		return d, errs.New(errs.Corrupt, "lake metadata: property %s: %v", metaSchema, err)
	}
	d.schema = int32(schema)
	if err := json.Unmarshal([]byte(props[metaSchemaIDs]), &d.schemaIDs); err != nil {
		return d, errs.New(errs.Corrupt, "lake metadata: property %s: %v", metaSchemaIDs, err)
	}
	return d, nil
}

// applyDefinition brings the metadata in b, built from base (nil at birth), up
// to a definition: schemas, partition spec, properties. A definition that is
// older than the one applied last is a Conflict when it would take something
// back, because its holder must refresh.
func applyDefinition(b *table.MetadataBuilder, base table.Metadata, def *TableDef) error {
	had, err := definitionOf(base)
	if err != nil {
		return err
	}
	if base != nil && (def.Version < had.version || def.CurrentSchema < had.schema) {
		return errs.New(errs.Conflict, "the lake of %s follows definition %d with schema %d, and this one is older (%d, schema %d): refresh it",
			def, had.version, had.schema, def.Version, def.CurrentSchema)
	}
	ids := maps.Clone(had.schemaIDs)
	format, err := def.FormatVersion()
	if err != nil {
		return err
	}
	if base != nil {
		format = base.Version()
	}
	if err := addSchemas(b, def, format, ids); err != nil {
		return err
	}
	wanted, err := wantedSpec(def)
	if err != nil {
		return err
	}
	var history []iceberg.PartitionSpec
	var last *int
	if base != nil {
		history, last = base.PartitionSpecs(), base.LastPartitionSpecID()
	}
	if err := ensureSpec(b, history, last, wanted, base == nil); err != nil {
		return errs.Wrap(errs.Internal, "set partition spec", err)
	}
	return applyProperties(b, base, def, ids)
}

// addSchemas adds the schema versions that the lake has not seen and makes the
// current one current. Iceberg refuses two equal schemas, so that two Firn ids
// may share one Iceberg id.
func addSchemas(b *table.MetadataBuilder, def *TableDef, format int, ids map[int32]int) error {
	for _, s := range def.Schemas {
		if _, ok := ids[s.ID]; ok || s.ID > def.CurrentSchema {
			continue
		}
		converted, err := icebergSchema(s, def.Schemas[0], format)
		if err != nil {
			return err
		}
		if err := b.AddSchema(converted); err != nil {
			return errs.New(errs.Invalid, "schema %d of %s: %v", s.ID, def, err)
		}
		if err := b.SetCurrentSchemaID(-1); err != nil {
			return errs.Wrap(errs.Internal, "set current schema", err)
		}
		ids[s.ID] = b.CurrentSchema().ID
	}
	id, ok := ids[def.CurrentSchema]
	if !ok {
		return errs.New(errs.Internal, "table %s has no schema %d", def, def.CurrentSchema)
	}
	return errs.Wrap(errs.Internal, "set current schema", b.SetCurrentSchemaID(id))
}

func applyProperties(b *table.MetadataBuilder, base table.Metadata, def *TableDef, ids map[int32]int) error {
	have := iceberg.Properties{}
	if base != nil {
		have = base.Properties()
	}
	encodedIDs, err := json.Marshal(ids)
	if err != nil {
		return errs.Wrap(errs.Internal, "encode schema ids", err)
	}
	want := iceberg.Properties{
		metaSchemaIDs: string(encodedIDs),
		metaSchema:    strconv.Itoa(int(def.CurrentSchema)),
	}
	for k, v := range def.Properties {
		want[metaUserPrefix+k] = v
	}
	var gone []string
	for k := range have {
		if _, ok := want[k]; !ok && strings.HasPrefix(k, metaUserPrefix) {
			gone = append(gone, k)
		}
	}
	maps.DeleteFunc(want, func(k, v string) bool { old, ok := have[k]; return ok && old == v })
	if len(want)+len(gone) == 0 && !b.HasChanges() {
		return nil
	}
	want[metaDefinition] = strconv.FormatUint(def.Version, 10)
	if len(gone) > 0 {
		if err := b.RemoveProperties(gone); err != nil {
			return errs.Wrap(errs.Internal, "remove properties", err)
		}
	}
	return errs.Wrap(errs.Internal, "set properties", b.SetProperties(want))
}

// writeHint writes version-hint.text, which path readers start from. It is a
// hint to them and nothing to us: a failure is logged, and the next commit
// writes it again.
func (l *Lake) writeHint(ctx context.Context, def TableDef, v int64) {
	if err := l.store.Put(ctx, def.hintKey(), []byte(strconv.FormatInt(v, 10))); err != nil {
		l.opts.Logger.Warn("lake version hint not written", "table", def.String(), "version", v, "error", err)
	}
}

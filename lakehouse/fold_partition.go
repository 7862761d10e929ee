package lakehouse

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// maxPartitions bounds the partition tuples that one bucket's fold remembers.
// Past it the open files are closed and the partitioner starts afresh.
const maxPartitions = 16 << 10

// partitioner splits a bucket's batches by the table's partition tuple. Groups
// are numbered from zero in order of appearance. It is used by one goroutine.
type partitioner struct {
	schema *segments.Schema
	fields []partitionColumn
	bucket int32
	levels []map[[2]int32]int32 // by field: (number of the fields before, code) → number
	pairs  [][][2]int32         // their inverses
	groups []map[int]any        // partition values by Iceberg partition field id
}

// partitionColumn gives each distinct value of one partition field a code.
type partitionColumn struct {
	field    segments.PartitionField
	result   segments.Type
	id       int  // of the Iceberg partition field
	isBucket bool // it is the bucket itself: constant where not NULL
	fixed    map[int64]int32
	bytes    map[string]int32
	null     int32 // code of NULL, or -1
	values   []any // by code
}

// rowGroup is the rows of a batch that belong to one partition group, in order.
type rowGroup struct {
	group int32
	rows  []int32 // nil: all rows
}

func newPartitioner(def *TableDef, schema *segments.Schema, spec *iceberg.PartitionSpec, bucket int32) (*partitioner, error) {
	p := &partitioner{schema: schema, bucket: bucket}
	for _, f := range spec.Fields() {
		src := segments.PartitionField{SourceID: int32(f.SourceID()), Name: f.Name, Transform: f.Transform.String()}
		result, err := src.ResultType(schema)
		if err != nil {
			return nil, err
		}
		t, bucketed := f.Transform.(iceberg.BucketTransform)
		own := bucketed && len(def.BucketKey) == 1 && def.BucketKey[0] == src.SourceID && t.NumBuckets == int(def.Buckets)
		p.fields = append(p.fields, partitionColumn{
			field: src, result: result, id: f.FieldID, isBucket: own,
			fixed: map[int64]int32{}, bytes: map[string]int32{}, null: -1,
		})
		p.levels = append(p.levels, map[[2]int32]int32{})
		p.pairs = append(p.pairs, nil)
	}
	if len(p.fields) == 0 {
		p.groups = []map[int]any{{}}
	}
	return p, nil
}

// full reports that the partitioner should be replaced by a new one.
func (p *partitioner) full() bool { return len(p.groups) > maxPartitions }

// split returns the groups of a batch's rows.
func (p *partitioner) split(rec arrow.RecordBatch) ([]rowGroup, error) {
	if len(p.fields) == 0 {
		return []rowGroup{{group: 0}}, nil
	}
	n := int(rec.NumRows())
	combined := make([]int32, n)
	codes := make([]int32, n)
	for level := range p.fields {
		if err := p.fields[level].encode(rec, p.schema, p.bucket, codes); err != nil {
			return nil, err
		}
		last := level == len(p.fields)-1
		var prev [2]int32
		var prevID int32 = -1
		for i, c := range codes {
			pair := [2]int32{combined[i], c}
			if pair != prev || prevID < 0 {
				prev, prevID = pair, p.tuple(level, pair, last)
			}
			combined[i] = prevID
		}
	}
	counts := make([]int32, len(p.groups))
	for _, g := range combined {
		counts[g]++
	}
	return groupRows(combined, counts), nil
}

// tuple numbers a combination of the fields up to level.
func (p *partitioner) tuple(level int, pair [2]int32, last bool) int32 {
	if id, ok := p.levels[level][pair]; ok {
		return id
	}
	id := int32(len(p.levels[level]))
	p.levels[level][pair] = id
	p.pairs[level] = append(p.pairs[level], pair)
	if last {
		values := make(map[int]any, len(p.fields))
		code := pair
		for l := level; l >= 0; l-- {
			values[p.fields[l].id] = p.fields[l].values[code[1]]
			if l > 0 {
				code = p.pairs[l-1][code[0]]
			}
		}
		p.groups = append(p.groups, values)
	}
	return id
}

// groupRows turns a group number by row into row lists, keeping the order of rows.
func groupRows(groupOf, counts []int32) []rowGroup {
	order := make([]int32, len(groupOf))
	starts := make([]int32, len(counts))
	var at int32
	var out []rowGroup
	for g, n := range counts {
		starts[g] = at
		if int(n) == len(groupOf) {
			return []rowGroup{{group: int32(g)}}
		}
		if n > 0 {
			out = append(out, rowGroup{group: int32(g), rows: order[at : at+n]})
		}
		at += n
	}
	for row, g := range groupOf {
		order[starts[g]] = int32(row)
		starts[g]++
	}
	return out
}

// encode writes the code of each row's partition value.
func (c *partitionColumn) encode(rec arrow.RecordBatch, s *segments.Schema, bucket int32, codes []int32) error {
	if c.isBucket {
		return c.encodeBucket(rec, s, bucket, codes)
	}
	a, err := c.field.Apply(rec, s)
	if err != nil {
		return err
	}
	defer a.Release()
	if get := int64Key(a); get != nil {
		var prev int64
		var prevCode int32 = -1
		for i := range codes {
			if a.IsNull(i) {
				codes[i] = c.nullCode()
				continue
			}
			if k := get(i); prevCode < 0 || k != prev {
				code, ok := c.fixed[k]
				if !ok {
					code = c.add(partitionValue(a, i, c.result))
					c.fixed[k] = code
				}
				prev, prevCode = k, code
			}
			codes[i] = prevCode
		}
		return nil
	}
	get := valueBytes(a)
	if get == nil {
		return errs.New(errs.Internal, "partition field %s: values of type %s cannot be grouped", c.field.Name, a.DataType())
	}
	for i := range codes {
		if a.IsNull(i) {
			codes[i] = c.nullCode()
			continue
		}
		k := get(i)
		code, ok := c.bytes[string(k)]
		if !ok {
			code = c.add(partitionValue(a, i, c.result))
			c.bytes[string(k)] = code
		}
		codes[i] = code
	}
	return nil
}

// encodeBucket uses that a row stands in the bucket that its key hashes to; only
// the first row with a key is hashed again, to hold the caller to it.
func (c *partitionColumn) encodeBucket(rec arrow.RecordBatch, s *segments.Schema, bucket int32, codes []int32) error {
	a := rec.Column(s.IndexOfID(c.field.SourceID))
	checked := false
	for i := range codes {
		if a.IsNull(i) {
			codes[i] = c.nullCode()
			continue
		}
		if !checked {
			checked = true
			if err := c.checkBucket(rec, i, s, bucket); err != nil {
				return err
			}
			if _, ok := c.fixed[0]; !ok {
				c.fixed[0] = c.add(bucket)
			}
		}
		codes[i] = c.fixed[0]
	}
	return nil
}

func (c *partitionColumn) checkBucket(rec arrow.RecordBatch, row int, s *segments.Schema, bucket int32) error {
	one := rec.NewSlice(int64(row), int64(row)+1)
	defer one.Release()
	a, err := c.field.Apply(one, s)
	if err != nil {
		return err
	}
	defer a.Release()
	if got := a.(*array.Int32).Value(0); got != bucket {
		return errs.New(errs.Internal, "a row of bucket %d hashes to bucket %d", bucket, got)
	}
	return nil
}

func (c *partitionColumn) nullCode() int32 {
	if c.null < 0 {
		c.null = c.add(nil)
	}
	return c.null
}

func (c *partitionColumn) add(v any) int32 {
	c.values = append(c.values, v)
	return int32(len(c.values) - 1)
}

// int64Key returns a function that maps equal fixed-width values, and only those,
// to equal numbers; nil for other types. Floats compare by their bits: 0 and -0
// are two partitions, all NaNs of one bit pattern one.
func int64Key(a arrow.Array) func(int) int64 {
	switch a := a.(type) {
	case *array.Boolean:
		return func(i int) int64 {
			if a.Value(i) {
				return 1
			}
			return 0
		}
	case *array.Int32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Int64:
		return a.Value
	case *array.Date32:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Time64:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Timestamp:
		return func(i int) int64 { return int64(a.Value(i)) }
	case *array.Float32:
		return func(i int) int64 { return int64(math.Float32bits(a.Value(i))) }
	case *array.Float64:
		return func(i int) int64 { return int64(math.Float64bits(a.Value(i))) }
	}
	return nil
}

// partitionValue returns a value as iceberg-go's manifest writer takes it.
func partitionValue(a arrow.Array, i int, t segments.Type) any {
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(i)
	case *array.Int32:
		return a.Value(i)
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Date32:
		return iceberg.Date(a.Value(i))
	case *array.Time64:
		return iceberg.Time(a.Value(i))
	case *array.Timestamp:
		return iceberg.Timestamp(a.Value(i))
	case *array.String:
		return string([]byte(a.Value(i)))
	case *array.Binary:
		return slices.Clone(a.Value(i))
	case *array.Decimal128:
		return iceberg.Decimal{Val: a.Value(i), Scale: t.Scale}
	case *array.FixedSizeBinary:
		if t.Kind == segments.UUID {
			return uuid.UUID(a.Value(i))
		}
		return slices.Clone(a.Value(i))
	}
	return nil
}

// tupleKey returns a partition tuple as a map key: equal for equal tuples.
func tupleKey(specID int32, values map[int]any) string {
	ids := make([]int, 0, len(values))
	for id := range values {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	key := binary.AppendVarint(nil, int64(specID))
	for _, id := range ids {
		key = binary.AppendVarint(key, int64(id))
		key = appendValueKey(key, values[id])
	}
	return string(key)
}

func appendValueKey(key []byte, v any) []byte {
	sized := func(tag byte, b []byte) []byte {
		return append(binary.AppendUvarint(append(key, tag), uint64(len(b))), b...)
	}
	number := func(n int64) []byte { return binary.AppendVarint(append(key, 1), n) }
	switch v := v.(type) {
	case nil:
		return append(key, 0)
	case bool:
		if v {
			return number(1)
		}
		return number(0)
	case int32:
		return number(int64(v))
	case int64:
		return number(v)
	case iceberg.Date:
		return number(int64(v))
	case iceberg.Time:
		return number(int64(v))
	case iceberg.Timestamp:
		return number(int64(v))
	case float32:
		return number(int64(math.Float32bits(v)))
	case float64:
		return number(int64(math.Float64bits(v)))
	case string:
		return sized(2, []byte(v))
	case []byte:
		return sized(2, v)
	case uuid.UUID:
		return sized(2, v[:])
	case iceberg.Decimal:
		return sized(3, v.Val.BigInt().Append(nil, 10))
	case iceberg.DecimalLiteral:
		return sized(3, v.Val.BigInt().Append(nil, 10))
	}
	return append(key, 4)
}

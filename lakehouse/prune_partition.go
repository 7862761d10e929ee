package lakehouse

import (
	"github.com/apache/iceberg-go"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

// partitionPruner rules files out by the bucket transforms of their partition
// specs. The other transforms keep order, so that the bounds of their source
// column in each file say at least as much; a hash says what no bounds can.
type partitionPruner struct {
	root filter.Node
	// specs maps a partition spec to its bucket fields.
	specs map[int32][]bucketField
}

type bucketField struct {
	source  int32 // field id of the column
	field   int   // Iceberg partition field id
	buckets int32
}

// newPartitionPruner returns nil when no spec of the table has a bucket field.
func newPartitionPruner(s *Snapshot, f *filter.Expr) *partitionPruner {
	if s.Metadata == nil {
		return nil
	}
	p := &partitionPruner{root: f.Root(), specs: map[int32][]bucketField{}}
	for _, spec := range s.Metadata.PartitionSpecs() {
		for _, field := range spec.Fields() {
			if t, ok := field.Transform.(iceberg.BucketTransform); ok {
				id := int32(spec.ID())
				p.specs[id] = append(p.specs[id], bucketField{source: int32(field.SourceID()), field: field.FieldID, buckets: int32(t.NumBuckets)})
			}
		}
	}
	if len(p.specs) == 0 {
		return nil
	}
	return p
}

// excludes reports whether no row of the file can match.
func (p *partitionPruner) excludes(data *DataFile) bool {
	return p != nil && len(p.specs[data.SpecID]) > 0 && !p.mayMatch(p.root, data)
}

func (p *partitionPruner) mayMatch(n filter.Node, data *DataFile) bool {
	switch n := n.(type) {
	case *filter.And:
		for _, arg := range n.Args {
			if !p.mayMatch(arg, data) {
				return false
			}
		}
	case *filter.Or:
		for _, arg := range n.Args {
			if p.mayMatch(arg, data) {
				return true
			}
		}
		return false
	case *filter.Compare:
		return n.Op != filter.Eq || p.mayHold(n.Col, []filter.Value{n.Value}, data)
	case *filter.In:
		return n.Not || p.mayHold(n.Col, n.Values, data)
	}
	return true
}

// mayHold reports whether a file's partition may hold one of the values.
func (p *partitionPruner) mayHold(c *filter.Column, values []filter.Value, data *DataFile) bool {
	for _, b := range p.specs[data.SpecID] {
		if b.source != c.ID {
			continue
		}
		have, ok := data.Partition[b.field].(int32)
		if !ok {
			continue // NULL, or a form that is not ours: the bounds decide
		}
		found := false
		for _, v := range values {
			value, err := segments.ToIcebergValue(v.Any(), c.Type)
			if err != nil {
				return true
			}
			bucket, err := segments.BucketOfValue(c.Type, value, b.buckets)
			if err != nil {
				return true
			}
			found = found || bucket == have
		}
		if !found {
			return false
		}
	}
	return true
}

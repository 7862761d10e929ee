package lakehouse

import (
	"github.com/firn-data/firn/segments/filter"
)

type partitionPruner struct{}

func newPartitionPruner(s *Snapshot, f *filter.Expr) *partitionPruner { return nil }

func (p *partitionPruner) excludes(data *DataFile) bool { return false }

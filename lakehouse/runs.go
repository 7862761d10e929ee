package lakehouse

// Run is a stretch of a data file's rows with consecutive offsets and one commit
// timestamp. Runs of a file are in row order, cover all of its rows, and their
// offsets ascend.
type Run struct {
	FirstRow    int64 // position in the file
	FirstOffset int64 // in the bucket's log
	Count       int64
	Timestamp   int64 // commit time, µs since the epoch
}

// RunsKey is the key of the runs in the Parquet footer's key-value metadata.
const RunsKey = "firn.rows"

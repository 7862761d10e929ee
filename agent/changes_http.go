package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// Columns that a stream's rows carry beside the table's.
var changeColumns = []arrow.Field{
	{Name: "_bucket", Type: arrow.PrimitiveTypes.Int32},
	{Name: "_offset", Type: arrow.PrimitiveTypes.Int64},
	{Name: "_timestamp", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
	{Name: "_change_type", Type: arrow.BinaryTypes.String},
}

// changeSchema is the schema of a stream's rows.
func changeSchema(s *segments.Schema) *arrow.Schema {
	return arrow.NewSchema(append(append([]arrow.Field(nil), changeColumns...), s.Arrow().Fields()...), nil)
}

// changeRecord joins a batch's rows with their positions.
func changeRecord(schema *arrow.Schema, b ChangeBatch) arrow.RecordBatch {
	n := len(b.Offsets)
	bucket := array.NewInt32Builder(memory.DefaultAllocator)
	offset := array.NewInt64Builder(memory.DefaultAllocator)
	stamp := array.NewTimestampBuilder(memory.DefaultAllocator, &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"})
	kind := array.NewStringBuilder(memory.DefaultAllocator)
	bucket.Reserve(n)
	stamp.Reserve(n)
	kind.Reserve(n)
	offset.AppendValues(b.Offsets, nil)
	for i := range n {
		bucket.UnsafeAppend(b.Bucket)
		stamp.UnsafeAppend(arrow.Timestamp(b.Timestamps[i]))
		kind.Append(changeName(b, i))
	}
	cols := []arrow.Array{bucket.NewArray(), offset.NewArray(), stamp.NewArray(), kind.NewArray()}
	return array.NewRecordBatch(schema, append(cols, b.Rows.Columns()...), int64(n))
}

// parseStart reads the start parameter.
func parseStart(v string) (Start, error) {
	mode, arg, _ := strings.Cut(v, ":")
	switch mode {
	case "", "earliest":
		return Start{Mode: StartEarliest}, nil
	case "latest":
		return Start{Mode: StartLatest}, nil
	case "timestamp":
		t, err := parseMoment(arg)
		if err != nil {
			return Start{}, errs.In("start", err)
		}
		return Start{Mode: StartTimestamp, Timestamp: t.UnixMicro()}, nil
	case "offsets":
		offsets, err := parseOffsets(arg)
		return Start{Mode: StartOffsets, Offsets: offsets}, err
	case "snapshot":
		return Start{Mode: StartSnapshot}, nil
	}
	return Start{}, errs.New(errs.Invalid, "start %q: must be earliest, latest, snapshot, timestamp:…, or offsets:0=12,1=40", v)
}

func parseOffsets(v string) (map[int32]int64, error) {
	out := map[int32]int64{}
	for _, part := range strings.Split(v, ",") {
		b, o, ok := strings.Cut(part, "=")
		bucket, err1 := strconv.ParseInt(strings.TrimSpace(b), 10, 32)
		offset, err2 := strconv.ParseInt(strings.TrimSpace(o), 10, 64)
		if !ok || err1 != nil || err2 != nil || offset < 0 {
			return nil, errs.New(errs.Invalid, "offsets %q: give bucket=offset pairs, as in 0=12,1=40", v)
		}
		if _, twice := out[int32(bucket)]; twice {
			return nil, errs.New(errs.Invalid, "offsets %q: bucket %d is given twice", v, bucket)
		}
		out[int32(bucket)] = offset
	}
	return out, nil
}

func formatOffsets(pos map[int32]int64) string {
	buckets := make([]int, 0, len(pos))
	for b := range pos {
		buckets = append(buckets, int(b))
	}
	sort.Ints(buckets)
	parts := make([]string, len(buckets))
	for i, b := range buckets {
		parts[i] = fmt.Sprintf("%d=%d", b, pos[int32(b)]) //nolint:gosec // was an int32
	}
	return strings.Join(parts, ",")
}

func (p *readParams) buckets() []int32 {
	v := p.q.Get("buckets")
	if v == "" {
		return nil
	}
	var out []int32
	for _, part := range strings.Split(v, ",") {
		b, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil {
			p.fail("buckets %q: give bucket numbers, as in 0,3", v)
			return nil
		}
		out = append(out, int32(b))
	}
	return out
}

// handleChanges serves GET …/changes.
func (a *Agent) handleChanges(w http.ResponseWriter, r *http.Request) {
	p := newReadParams(r, "start", "buckets", "columns", "where", "limit", "follow", "long")
	req := ChangesRequest{
		Buckets: p.buckets(), Columns: p.columns(), Where: p.q.Get("where"), Limit: p.int("limit", 0), Follow: p.bool("follow"),
		Idle: progressEvery,
	}
	longs := p.longAsString()
	format, sse, err := negotiate(acceptOf(r), true)
	if p.err == nil {
		p.err = err
	}
	start := p.q.Get("start")
	if id := r.Header.Get("Last-Event-ID"); id != "" && sse {
		start = "offsets:" + id
		if strings.Contains(id, "="+strconv.Itoa(snapshotOffset)) { // it broke among the rows of a snapshot
			start = "snapshot"
		}
	}
	if p.err == nil {
		req.Start, p.err = parseStart(start)
	}
	if p.err == nil && req.Follow && format == rows.Parquet {
		p.err = errs.New(errs.Invalid, "a Parquet file ends; it cannot be followed: use follow=false or another Accept")
	}
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	def, n, err := a.tableAndOwner(r.Context(), r.PathValue("database"), r.PathValue("table"))
	if err != nil {
		writeError(w, err)
		return
	}
	stream, err := n.Changes(r.Context(), def, req)
	if err == nil {
		defer stream.Close()
	}
	if err != nil || r.Method == http.MethodHead {
		writeHead(w, contentTypeOf(format, sse), err)
		return
	}
	out := &changeWriter{w: w, out: bufio.NewWriterSize(w, 64<<10), stream: stream, format: format, sse: sse, longs: longs, follow: req.Follow}
	if p.q.Has("limit") && req.Limit == 0 {
		stream.Batches = func(func(ChangeBatch, error) bool) {}
	}
	out.run(a)
}

func contentTypeOf(format rows.Format, sse bool) string {
	if sse {
		return "text/event-stream"
	}
	return format.ContentType()
}

const progressEvery = 5 * time.Second // a follower's longest silence

// changeWriter sends a stream in the wanted format. A text format gets progress
// lines; in the others a follower's silence is only silence.
type changeWriter struct {
	w      http.ResponseWriter
	out    *bufio.Writer
	stream *ChangeStream
	format rows.Format
	sse    bool
	longs  bool
	follow bool

	schema *arrow.Schema
	enc    rows.Encoder
	text   bytes.Buffer // one batch as NDJSON, for events
}

func (c *changeWriter) run(a *Agent) {
	c.schema = changeSchema(c.stream.Schema)
	started := false
	start := func() error {
		started = true
		return c.start()
	}
	fail := func(err error) {
		if !started {
			writeError(c.w, err)
			return
		}
		if !errs.Is(err, errs.Canceled) {
			a.logger.Warn("stream broken off", "error", err)
		}
		c.lastWords(err)
		panic(http.ErrAbortHandler) // net/http's way to break the connection
	}
	if c.follow {
		if err := start(); err != nil {
			fail(err)
			return
		}
	}
	for b, err := range c.stream.Batches {
		if err == nil && !started {
			err = start()
		}
		if err == nil {
			err = c.batch(b)
		}
		if err != nil {
			fail(err)
			return
		}
		if b.Rows != nil {
			a.metrics.rowsOut.Add(float64(b.Rows.NumRows()))
		}
	}
	if !started {
		if err := start(); err != nil {
			fail(err)
			return
		}
	}
	if err := c.finish(); err != nil {
		fail(err)
	}
}

func (c *changeWriter) start() error {
	h := c.w.Header()
	h.Set("X-Accel-Buffering", "no")
	h.Set("Content-Type", contentTypeOf(c.format, c.sse))
	if c.sse {
		h.Set("Cache-Control", "no-cache")
	}
	var err error
	target := rows.EncodeOptions{Schema: c.schema, Table: c.stream.Schema, Format: c.format, LongAsString: c.longs}
	if c.sse {
		c.enc, err = rows.NewEncoder(&c.text, target)
	} else {
		c.enc, err = rows.NewEncoder(c.out, target)
	}
	if err != nil || !c.follow {
		return err
	}
	return c.flush()
}

func (c *changeWriter) batch(b ChangeBatch) error {
	if b.Rows == nil {
		return c.progress()
	}
	if err := c.enc.Write(changeRecord(c.schema, b)); err != nil {
		return err
	}
	if !c.follow && !c.sse {
		return nil
	}
	if err := c.enc.Flush(); err != nil {
		return err
	}
	if c.sse {
		c.events(b)
	}
	if !c.follow {
		return nil
	}
	return c.flush()
}

// events turns the NDJSON rows of one batch into events. The id of each is the
// cursor behind its row, so that a reader who resumes after any event repeats
// none and misses none.
func (c *changeWriter) events(b ChangeBatch) {
	before, after := cursorAround(c.stream.Progress, b.Bucket)
	lines := bytes.Split(bytes.TrimRight(c.text.Bytes(), "\n"), []byte("\n"))
	for i, line := range lines {
		at := b.Next
		if i < len(lines)-1 && at != snapshotOffset {
			at = b.Offsets[i] + 1
		}
		fmt.Fprintf(c.out, "id: %s%d%s\ndata: %s\n\n", before, at, after, line)
	}
	c.text.Reset()
}

// cursorAround returns a cursor's text before and after one bucket's offset.
func cursorAround(pos map[int32]int64, bucket int32) (before, after string) {
	lower, higher := map[int32]int64{}, map[int32]int64{}
	for b, at := range pos {
		if b < bucket {
			lower[b] = at
		} else if b > bucket {
			higher[b] = at
		}
	}
	if before = formatOffsets(lower); before != "" {
		before += ","
	}
	if after = formatOffsets(higher); after != "" {
		after = "," + after
	}
	return before + strconv.Itoa(int(bucket)) + "=", after
}

// progress tells a follower how far it is when there is nothing to show.
func (c *changeWriter) progress() error {
	if !c.follow {
		return nil
	}
	switch {
	case c.sse:
		fmt.Fprintf(c.out, "event: progress\nid: %s\ndata: %s\n\n", formatOffsets(c.stream.Progress), progressLine(c.stream.Progress))
	case c.format == rows.NDJSON:
		fmt.Fprintf(c.out, "%s\n", progressLine(c.stream.Progress))
	}
	return c.flush()
}

func progressLine(pos map[int32]int64) string {
	return `{"_progress":{"` + strings.ReplaceAll(strings.ReplaceAll(formatOffsets(pos), ",", `,"`), "=", `":`) + `}}`
}

func (c *changeWriter) flush() error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	return http.NewResponseController(c.w).Flush()
}

// finish ends a stream that has an end.
func (c *changeWriter) finish() error {
	if err := c.enc.Close(); err != nil {
		return err
	}
	return c.out.Flush()
}

// lastWords tells a reader of a text stream why it ends.
func (c *changeWriter) lastWords(err error) {
	body, merr := json.Marshal(bodyOf(err))
	if merr != nil {
		return
	}
	switch {
	case c.sse:
		fmt.Fprintf(c.out, "event: error\ndata: %s\n\n", body)
	case c.format == rows.NDJSON:
		fmt.Fprintf(c.out, `{"_error":%s}`+"\n", body)
	}
	_ = c.flush()
}

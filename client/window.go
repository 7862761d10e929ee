package client

// batch is one request of a writer: rows [first, first+rows) of its sequence.
type batch struct {
	id    int64 // 1, 2, ... in the order of the rows
	first int64
	rows  int64
	body  []byte // an Arrow IPC stream; nil once acknowledged
	key   string // idempotency key of a writer that is no producer
	sent  bool   // on the connection in use, or in a worker's hands
	busy  bool   // the body may be read at this moment, by a connection in use or an older one
	acked bool
}

// window holds a writer's batches from the oldest that is not acknowledged. It is
// the whole state that a broken connection leaves behind: rewind makes everything
// that was not acknowledged ready to be sent again, in order.
//
// INVARIANTS: ids ascend without gaps; the head is not acknowledged;
// ackedBelow is the head's first row, or the next row when there is no head.
type window struct {
	batches    []*batch
	ackedBelow int64 // every row below it is acknowledged
	nextRow    int64
	nextID     int64
	bytes      int64 // of bodies held
	inFlight   int   // sent, not acknowledged
}

func newWindow(firstRow int64) *window {
	return &window{ackedBelow: firstRow, nextRow: firstRow, nextID: 1}
}

// push appends a batch of rows.
func (w *window) push(rows int64, body []byte, key string) *batch {
	b := &batch{id: w.nextID, first: w.nextRow, rows: rows, body: body, key: key}
	w.nextID++
	w.nextRow += rows
	w.bytes += int64(len(body))
	w.batches = append(w.batches, b)
	return b
}

// take returns the oldest batch that is not sent, marked as sent; nil when there
// is none or limit batches are in flight.
func (w *window) take(limit int) *batch {
	if w.inFlight >= limit {
		return nil
	}
	for _, b := range w.batches {
		if !b.sent {
			b.sent, b.busy = true, true
			w.inFlight++
			return b
		}
	}
	return nil
}

// find returns the batch with an id, nil when it is acknowledged or unknown.
func (w *window) find(id int64) *batch {
	if len(w.batches) == 0 {
		return nil
	}
	i := id - w.batches[0].id
	if i < 0 || i >= int64(len(w.batches)) || w.batches[i].acked {
		return nil
	}
	return w.batches[i]
}

// ack marks a batch as acknowledged; it reports false for one that is not
// waiting (a duplicated answer).
func (w *window) ack(id int64) bool {
	b := w.find(id)
	if b == nil {
		return false
	}
	b.acked = true
	if b.sent {
		w.inFlight--
	}
	w.bytes -= int64(len(b.body))
	b.body = nil
	for len(w.batches) > 0 && w.batches[0].acked {
		w.batches[0] = nil
		w.batches = w.batches[1:]
	}
	w.settle()
	return true
}

// skip leaves out n rows of the sequence: they count as acknowledged.
func (w *window) skip(n int64) {
	w.nextRow += n
	w.settle()
}

// settle restores the invariant of ackedBelow.
func (w *window) settle() {
	w.ackedBelow = w.nextRow
	if len(w.batches) > 0 {
		w.ackedBelow = w.batches[0].first
	}
}

// rewind makes every batch that is not acknowledged ready to be sent again.
func (w *window) rewind() {
	for _, b := range w.batches {
		if !b.acked {
			b.sent = false
		}
	}
	w.inFlight = 0
}

// done reports whether every batch up to id is acknowledged.
func (w *window) done(id int64) bool { return len(w.batches) == 0 || w.batches[0].id > id }

// pendingRows counts the rows that are not acknowledged.
func (w *window) pendingRows() int64 {
	n := int64(0)
	for _, b := range w.batches {
		if !b.acked {
			n += b.rows
		}
	}
	return n
}

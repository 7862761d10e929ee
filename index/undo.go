package index

// undoRecord is one change that is not durable yet, and what it replaced.
type undoRecord struct {
	key     Key
	offset  int64
	deleted bool
	before  Found  // the key's newest change before this one
	next    uint64 // number of the key's next record; 0 = none
}

// undoLog is the queue of changes that are not durable, by offset, with a way to
// the oldest one of each key. Records are numbered from 1.
type undoLog struct {
	records []undoRecord
	head    int    // of records; before it they are gone
	popped  uint64 // records that are gone
	keys    map[Key]undoSpan
}

// undoSpan numbers the first and the last record of a key.
type undoSpan struct{ first, last uint64 }

const undoRecordBytes = 64 + 56 // a record, and its share of the map

func (u *undoLog) bytes() int64 { return int64(cap(u.records)) * undoRecordBytes }

func (u *undoLog) at(number uint64) *undoRecord {
	return &u.records[u.head+int(number-u.popped-1)] //nolint:gosec // an index into records
}

// before returns what the oldest record of a key replaced.
func (u *undoLog) before(k Key) (Found, bool) {
	span, ok := u.keys[k]
	if !ok {
		return Found{}, false
	}
	return u.at(span.first).before, true
}

func (u *undoLog) push(r undoRecord) {
	if u.keys == nil {
		u.keys = map[Key]undoSpan{}
	}
	u.records = append(u.records, r)
	number := u.popped + uint64(len(u.records)-u.head)
	span, ok := u.keys[r.key]
	if ok {
		u.at(span.last).next = number
	} else {
		span.first = number
	}
	span.last = number
	u.keys[r.key] = span
}

// pop takes the oldest record off the queue if its change is below an offset.
func (u *undoLog) pop(below int64) (undoRecord, bool) {
	if u.head == len(u.records) || u.records[u.head].offset >= below {
		return undoRecord{}, false
	}
	r := u.records[u.head]
	if span := u.keys[r.key]; r.next == 0 {
		delete(u.keys, r.key)
	} else {
		span.first = r.next
		u.keys[r.key] = span
	}
	u.head++
	u.popped++
	switch {
	case u.head == len(u.records):
		u.records, u.head = u.records[:0], 0
	case u.head >= 1024 && u.head*2 >= len(u.records):
		u.records = append(u.records[:0], u.records[u.head:]...)
		u.head = 0
	}
	return r, true
}

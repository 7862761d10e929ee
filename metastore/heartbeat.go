package metastore

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Beat is a heartbeat object, agents/<incarnation>: a plain put, replaced by each
// beat. Only the change of its counter means anything; the rest is for people and
// for agents that look for an address.
type Beat struct {
	Format      int       `json:"format"`
	Incarnation string    `json:"incarnation"`
	AgentID     string    `json:"agent_id"`
	Counter     uint64    `json:"counter"`
	Address     string    `json:"address"`
	Zone        string    `json:"zone,omitempty"`
	Version     string    `json:"version,omitempty"`
	Time        time.Time `json:"time"`
}

// BeatFormat is the version of the heartbeats that this code writes.
const BeatFormat = 1

const maxBeatBytes = 16 << 10

func agentKey(incarnation string) string { return agentPrefix + incarnation }

// DecodeBeat reads a heartbeat. Unknown fields are allowed: nothing depends on them.
func DecodeBeat(body []byte) (Beat, error) {
	var b Beat
	if len(body) > maxBeatBytes {
		return b, errs.New(errs.Corrupt, "heartbeat of %d bytes; the limit is %d", len(body), maxBeatBytes)
	}
	if err := json.Unmarshal(bytes.TrimSpace(body), &b); err != nil {
		return b, errs.New(errs.Corrupt, "heartbeat: %v", err)
	}
	return b, nil
}

// HeartbeatOptions configure a Heartbeat.
type HeartbeatOptions struct {
	Store objstore.Store
	Beat  Beat // identity and address; counter and time are filled in
	// Live looks at the log, with certainty (Log.Refresh), and returns an error of
	// class Fenced when the incarnation is dead; NotFound when it has not joined.
	Live func(context.Context) error

	Lease    time.Duration // zero: DefaultLease
	Interval time.Duration // between beats; zero: a quarter of the lease
	Now      func() time.Time
	Logger   *slog.Logger
}

// Heartbeat writes one incarnation's heartbeats, and knows whether the
// incarnation may answer for the latest value.
type Heartbeat struct {
	o HeartbeatOptions

	beating turn // one beat at a time

	mu struct {
		sync.Mutex
		lease   lease
		counter uint64
		fenced  bool
	}

	fencedCh chan struct{}
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// OpenHeartbeat writes the first heartbeat, so that it is there before the
// incarnation joins, and then beats until Close, or until the incarnation is
// fenced.
func OpenHeartbeat(ctx context.Context, o HeartbeatOptions) (*Heartbeat, error) {
	setDefault(&o.Lease, DefaultLease)
	setDefault(&o.Interval, o.Lease/beatsPerLease)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Heartbeat{o: o, beating: make(turn, 1), fencedCh: make(chan struct{})}
	h.mu.lease = lease{length: o.Lease, margin: o.Lease / marginPart}
	if _, err := h.put(ctx); err != nil {
		return nil, errs.In("write heartbeat", err)
	}
	run, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.done.Go(func() { h.run(run) })
	return h, nil
}

// Confirmed reports whether it is certain, now, that nobody else owns this
// incarnation's slots: reads that promise the latest value may be answered.
func (h *Heartbeat) Confirmed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.fenced && h.mu.lease.holds(h.o.Now())
}

// Confirm returns nil when Confirmed holds, after a beat and a look at the log if
// need be. Fenced: the incarnation is dead for good.
func (h *Heartbeat) Confirm(ctx context.Context) error {
	if h.Confirmed() {
		return nil
	}
	if err := h.beat(ctx); err != nil {
		return errs.In("confirm ownership", err)
	}
	if !h.Confirmed() {
		return errs.New(errs.Unavailable, "confirm ownership: the store answers slower than the lease of %s", h.o.Lease)
	}
	return nil
}

// Fenced is closed when the heartbeat learned that its incarnation is dead. It
// learns that only after a lapse; the log's followers usually know earlier.
func (h *Heartbeat) Fenced() <-chan struct{} { return h.fencedCh }

// Close stops beating. The object stays, and goes with the incarnation's other
// leftovers.
func (h *Heartbeat) Close(ctx context.Context) error {
	h.stop()
	finished := make(chan struct{})
	go func() { h.done.Wait(); close(finished) }()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "close heartbeat", ctx.Err())
	}
}

func (h *Heartbeat) run(ctx context.Context) {
	tick := time.NewTicker(h.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.fencedCh:
			return
		case <-tick.C:
		}
		// A beat that hangs for a lease is worth nothing any more.
		one, cancel := context.WithTimeout(ctx, h.o.Lease)
		err := h.beat(one)
		cancel()
		if err != nil && ctx.Err() == nil && !errs.Is(err, errs.NotFound) {
			h.o.Logger.Warn("heartbeat failed", "incarnation", h.o.Beat.Incarnation, "error", err)
		}
	}
}

// beat writes one heartbeat and confirms the lease by it, asking the log when the
// lease had lapsed.
func (h *Heartbeat) beat(ctx context.Context) error {
	if err := h.beating.take(ctx); err != nil {
		return err
	}
	defer h.beating.give()
	start, err := h.put(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	confirmed := h.mu.lease.beat(start, h.o.Now())
	h.mu.Unlock()
	if confirmed {
		return nil
	}
	if err := h.o.Live(ctx); err != nil {
		if errs.Is(err, errs.Fenced) {
			h.fence()
		}
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.lease.checked(start)
	return nil
}

func (h *Heartbeat) fence() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.fenced {
		h.mu.fenced = true
		close(h.fencedCh)
	}
}

// put writes the next heartbeat and returns when it began.
func (h *Heartbeat) put(ctx context.Context) (start time.Time, err error) {
	h.mu.Lock()
	h.mu.counter++
	b := h.o.Beat
	b.Format, b.Counter = BeatFormat, h.mu.counter
	h.mu.Unlock()
	start = h.o.Now()
	b.Time = entryTime(start)
	body, err := json.Marshal(b)
	if err != nil {
		return start, errs.Wrap(errs.Internal, "encode heartbeat", err)
	}
	return start, h.o.Store.Put(ctx, agentKey(b.Incarnation), append(body, '\n'))
}

// CheckLive returns the check that a Heartbeat asks of the log.
func (l *Log) CheckLive(incarnation string) func(context.Context) error {
	return func(ctx context.Context) error {
		s, err := l.Refresh(ctx)
		if err != nil {
			return err
		}
		_, err = s.live(incarnation)
		return err
	}
}

package wal

import (
	"crypto/rand"
	"io"
	"log/slog"
	"runtime"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// Defaults of Options.
const (
	DefaultFlushBytes      = 4 << 20
	DefaultFlushAge        = 100 * time.Millisecond
	LocalFlushAge          = 5 * time.Millisecond // for file:// and mem://
	DefaultInFlight        = 4
	DefaultMaxPendingBytes = 256 << 20

	// DefaultFlushFloor is how long rows gather when nothing is in flight: long
	// enough for concurrent requests to share a put, short beside any put.
	DefaultFlushFloor = 2 * time.Millisecond
	// MaxInFlight bounds Options.InFlight.
	MaxInFlight = 64
)

// Options configure a Log. Store and Incarnation are required; zero means the
// default elsewhere, except that the zero Codec is CodecNone.
type Options struct {
	Store       objstore.Store
	Incarnation string
	// NextSeq is the first position to write.
	NextSeq uint64

	FlushBytes int64
	FlushAge   time.Duration
	FlushFloor time.Duration // at most FlushAge
	InFlight   int
	Codec      segments.Codec
	// MaxPendingBytes bounds the bytes handed over and not yet answered, with a
	// little for each entry.
	MaxPendingBytes int64
	// EncodeWorkers bounds the segments encoded at a time; default GOMAXPROCS.
	EncodeWorkers int

	// OnCommit hears of each durable object in sequence order, before the Done
	// calls of its entries. It must not block for long.
	OnCommit func(Committed)
	// OnFatal hears once why the log stopped for good, before the waiters do:
	// Fenced, or the class of what the store answered. It must not block, and
	// must not wait for Close.
	OnFatal func(error)

	// Create sets the patience and the clock of conditional puts; OnRetry is
	// called beside the log's own.
	Create objstore.CreatePolicy
	Now    func() time.Time
	Rand   io.Reader // of nonces; default crypto/rand
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil {
		return o, errs.New(errs.Invalid, "wal: no store")
	}
	if err := CheckIncarnation(o.Incarnation); err != nil {
		return o, err
	}
	orDefault(&o.FlushBytes, DefaultFlushBytes)
	orDefault(&o.FlushAge, DefaultFlushAge)
	orDefault(&o.FlushFloor, DefaultFlushFloor)
	orDefault(&o.InFlight, DefaultInFlight)
	orDefault(&o.MaxPendingBytes, DefaultMaxPendingBytes)
	orDefault(&o.EncodeWorkers, runtime.GOMAXPROCS(0))
	o.FlushFloor = min(o.FlushFloor, o.FlushAge)
	if o.InFlight > MaxInFlight {
		return o, errs.New(errs.Invalid, "wal: %d puts in flight, at most %d", o.InFlight, MaxInFlight)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

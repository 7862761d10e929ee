package metastore

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Options configure a Log. The zero value of every field but Writer is ready to
// use.
type Options struct {
	// Writer names who writes: this agent's incarnation, or a tool. One Log at a
	// time may write under a name. Empty: the Log only reads.
	Writer string
	// SlotCount of a cluster that does not exist yet. Zero: DefaultSlots.
	SlotCount int

	// SnapshotEvery is the number of entries between snapshots. Zero: 100.
	SnapshotEvery uint64
	// TrimAge is how old an entry must be, by the store's clock, to be deleted.
	// Zero: 24 h; negative: no age is asked for.
	TrimAge time.Duration
	// MaxViewAge is how long a view may go without contact with the store before
	// it is made certain again by itself. Zero: 10 minutes.
	MaxViewAge time.Duration
	// PollMin and PollMax bound the pause between two looks for the next entry;
	// it starts small after each entry and doubles. Zero: 250 ms and 5 s.
	PollMin, PollMax time.Duration
	// Manual starts no goroutine: the caller calls Refresh and Maintain.
	Manual bool

	Create objstore.CreatePolicy // patience of appends
	Now    func() time.Time      // time of entries; nil: time.Now
	Rand   io.Reader             // nonces and ids; nil: crypto/rand
	Logger *slog.Logger          // nil: discards

	// check replaces the proof that a position was never freed, so that tests
	// can show what it is for.
	check positionCheck
}

func (o Options) withDefaults() Options {
	setDefault(&o.SlotCount, DefaultSlots)
	setDefault(&o.SnapshotEvery, 100)
	setDefault(&o.TrimAge, 24*time.Hour)
	setDefault(&o.MaxViewAge, 10*time.Minute)
	setDefault(&o.PollMin, 250*time.Millisecond)
	setDefault(&o.PollMax, max(5*time.Second, o.PollMin))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Log follows and extends the metadata log of one store.
type Log struct {
	store objstore.Store
	o     Options

	appending turn // one append at a time: a writer's last mark stays exact
	reading   turn // one reader of the log at a time
	keeping   turn // one snapshot or trim at a time

	upkeep chan struct{} // asks for Maintain; one request is enough

	mu struct {
		sync.Mutex // guards what follows, never held over I/O
		state      *State
		changed    chan struct{} // closed when state is replaced
		contact    time.Time     // start of the last look that found the end of the log
		certain    time.Time     // start of the last look that proved it
		candidate  *State        // the newest state at a multiple of SnapshotEvery
		kept       uint64        // sequence of the newest snapshot known to exist
	}

	stop context.CancelFunc
	done sync.WaitGroup
}

// turn is a lock that can be waited for with a context, and held over I/O.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "wait for the metadata log", ctx.Err())
	}
}

func (t turn) give() { <-t }

// Open reads the newest state and, unless Options.Manual is set, starts to follow
// the log. A Log that writes creates the cluster when the store holds none; of
// several that do so at once, one wins and all agree. A Log that only reads
// answers NotFound then.
func Open(ctx context.Context, store objstore.Store, o Options) (*Log, error) {
	l := &Log{
		store: store, o: o.withDefaults(),
		appending: make(turn, 1), reading: make(turn, 1), keeping: make(turn, 1),
		upkeep: make(chan struct{}, 1),
	}
	l.mu.state = &State{}
	l.mu.changed = make(chan struct{})
	if err := l.open(ctx); err != nil {
		return nil, errs.In("open metadata log", err)
	}
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	if !l.o.Manual {
		l.done.Go(func() { l.follow(run) })
		l.done.Go(func() { l.keep(run) })
	}
	return l, nil
}

func (l *Log) open(ctx context.Context) error {
	if _, err := l.Refresh(ctx); err != nil {
		return err
	}
	if l.State().Seq > 0 {
		return nil
	}
	for info, err := range l.store.List(ctx, logPrefix, "") {
		if err != nil {
			return err
		}
		// Another opener may have made it since the look; otherwise it is damage.
		if s, err := l.Refresh(ctx); err != nil || s.Seq > 0 {
			return err
		}
		return errs.New(errs.Corrupt, "the log starts at %s, and there is no snapshot of what came before", info.Key)
	}
	if l.o.Writer == "" {
		return errs.New(errs.NotFound, "the store holds no Firn cluster")
	}
	id, err := newNonce(l.o.Rand)
	if err != nil {
		return err
	}
	_, err = l.Append(ctx, func(s *State) (Command, error) {
		if s.Seq > 0 {
			return nil, nil // another opener was first
		}
		return &Init{ClusterID: id, SlotCount: l.o.SlotCount}, nil
	})
	return err
}

// State returns the newest view. It never waits.
func (l *Log) State() *State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state
}

// Watch returns the newest view and a channel that is closed when there is a
// newer one.
func (l *Log) Watch() (*State, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state, l.mu.changed
}

// Changed returns a channel that is closed when the view changes the next time.
// To miss nothing, use Watch.
func (l *Log) Changed() <-chan struct{} {
	_, changed := l.Watch()
	return changed
}

// WaitFor returns a view that has applied the entry seq: callers carry the
// sequence they know, and who lags behind looks at once.
func (l *Log) WaitFor(ctx context.Context, seq uint64) (*State, error) {
	if s := l.State(); s.Seq >= seq {
		return s, nil
	}
	s, err := l.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if s.Seq < seq {
		return nil, errs.New(errs.Unavailable, "the metadata log ends at entry %d; entry %d was asked for", s.Seq, seq)
	}
	return s, nil
}

// Close stops following and waits for snapshots under way, at most as long as
// ctx allows.
func (l *Log) Close(ctx context.Context) error {
	l.stop()
	finished := make(chan struct{})
	go func() { l.done.Wait(); close(finished) }()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "close metadata log", ctx.Err())
	}
}

// publish makes s the view unless a newer one is there. INVARIANT(meta-1): every
// s handed in here was proved to be a prefix of the one log.
func (l *Log) publish(s *State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Seq <= l.mu.state.Seq {
		return
	}
	l.mu.state = s
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
}

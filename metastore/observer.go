package metastore

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// maxBeatReads bounds the heartbeats that are read at once.
const maxBeatReads = 8

// ObserverOptions configure an Observer.
type ObserverOptions struct {
	Store objstore.Store
	State func() *State // the newest view (Log.State)
	Self  string        // own incarnation, which is not watched

	Lease    time.Duration // zero: DefaultLease
	Interval time.Duration // between looks; zero: a quarter of the lease
	Now      func() time.Time
	Logger   *slog.Logger
}

// Observer reads the heartbeats of the live incarnations and reports those that
// stood still for a whole lease by this process's monotonic clock.
type Observer struct {
	o       ObserverOptions
	looking turn

	mu struct {
		sync.Mutex
		tracker tracker
		silent  []string
		changed chan struct{}
	}

	stop context.CancelFunc
	done sync.WaitGroup
}

// OpenObserver starts to watch.
func OpenObserver(o ObserverOptions) *Observer {
	ob := newObserver(o)
	run, stop := context.WithCancel(context.Background())
	ob.stop = stop
	ob.done.Go(func() { ob.run(run) })
	return ob
}

func newObserver(o ObserverOptions) *Observer {
	setDefault(&o.Lease, DefaultLease)
	setDefault(&o.Interval, o.Lease/beatsPerLease)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ob := &Observer{o: o, looking: make(turn, 1)}
	ob.mu.tracker.lease = o.Lease
	ob.mu.changed = make(chan struct{})
	return ob
}

// Silent returns the live incarnations that are silent, ascending, and a channel
// that is closed when that changes.
func (ob *Observer) Silent() ([]string, <-chan struct{}) {
	ob.mu.Lock()
	defer ob.mu.Unlock()
	return ob.mu.silent, ob.mu.changed
}

// StillSilent looks at a silent incarnation once more. Who fenced an incarnation
// asks it after the Fence entry stands, and before it serves the incarnation's
// slots: when true, the former owner holds no lease and gets none any more. When
// false it came back to life and may answer reads until its lease ends or it
// sees the fence; ask again, it is true after one lease of silence.
func (ob *Observer) StillSilent(ctx context.Context, incarnation string) (bool, error) {
	if err := ob.look(ctx, incarnation); err != nil {
		return false, errs.In("read heartbeat", err)
	}
	ob.mu.Lock()
	defer ob.mu.Unlock()
	return ob.mu.tracker.seen[incarnation].silent, nil
}

// Close stops watching.
func (ob *Observer) Close(ctx context.Context) error {
	ob.stop()
	finished := make(chan struct{})
	go func() { ob.done.Wait(); close(finished) }()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "close observer", ctx.Err())
	}
}

func (ob *Observer) run(ctx context.Context) {
	tick := time.NewTicker(ob.o.Interval)
	defer tick.Stop()
	for {
		if err := ob.poll(ctx); err != nil && ctx.Err() == nil {
			ob.o.Logger.Warn("reading heartbeats failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// poll looks at every live incarnation but its own, and keeps track of those
// fenced lately, for StillSilent.
func (ob *Observer) poll(ctx context.Context) error {
	if err := ob.looking.take(ctx); err != nil {
		return err
	}
	defer ob.looking.give()
	var live, watched []string
	for _, a := range ob.o.State().Agents() {
		if a.Incarnation == ob.o.Self || a.State == Left {
			continue
		}
		watched = append(watched, a.Incarnation)
		if a.State == Live {
			live = append(live, a.Incarnation)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxBeatReads)
	for _, id := range live {
		group.Go(func() error { return ob.look(ctx, id) })
	}
	err := group.Wait()
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.mu.tracker.keep(watched)
	silent := slices.DeleteFunc(ob.mu.tracker.silent(), func(id string) bool { return !slices.Contains(live, id) })
	if !slices.Equal(silent, ob.mu.silent) {
		ob.mu.silent = silent
		close(ob.mu.changed)
		ob.mu.changed = make(chan struct{})
	}
	return err
}

// look reads one heartbeat.
func (ob *Observer) look(ctx context.Context, incarnation string) error {
	start := ob.o.Now()
	var counter uint64
	body, _, err := ob.o.Store.Get(ctx, agentKey(incarnation))
	switch {
	case errs.Is(err, errs.NotFound):
	case err != nil:
		return err
	default:
		b, err := DecodeBeat(body)
		if err != nil {
			return err
		}
		counter = b.Counter
	}
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.mu.tracker.observe(incarnation, counter, start, ob.o.Now())
	return nil
}

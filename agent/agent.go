package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/probe"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
)

// Version is the version of the binary; the linker may set it.
var Version = "dev"

// Agent is one process: a metadata log, a lake, a listener, and one incarnation
// at a time. Make it with [New], start it with Open, end it with Close.
type Agent struct {
	cfg    Config
	logger *slog.Logger
	clock  func() time.Time

	store      objstore.Store // every request is counted by ledger
	ledger     *objstore.Ledger
	meta       metaLog
	lake       *lakehouse.Lake
	footers    *footerCache
	indexCache *index.Cache // blocks of key indexes
	metrics    *metrics
	bodies     *semaphore.Weighted // bytes of request bodies decoded at once

	current atomic.Pointer[incarnation]
	ended   chan endedIncarnation

	listener net.Listener
	server   *http.Server
	streams  turnstile // append streams over connections of their own

	stopping atomic.Bool
	fatalMu  sync.Mutex
	fatalErr error
	fatal    chan struct{} // closed when the agent cannot go on

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

type endedIncarnation struct {
	n     *incarnation
	cause error
}

// New checks the configuration. The store is the caller's to close, after Close.
func New(cfg Config, store objstore.Store, logger *slog.Logger) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	ledger := objstore.NewLedger(blamed{store}, nil)
	a := &Agent{
		cfg: cfg, logger: discardLogger(logger), clock: time.Now, store: ledger, ledger: ledger,
		footers: newFooterCache(ledger), ended: make(chan endedIncarnation, 1), fatal: make(chan struct{}),
		bodies: semaphore.NewWeighted(int64(cfg.MaxRequests) * cfg.MaxRequestBytes),
	}
	lakeAge := cfg.SafeAge
	if lakeAge == 0 {
		lakeAge = -1 // the lake takes zero for its default
	}
	a.lake = lakehouse.Open(ledger, lakehouse.Options{Logger: a.logger, SafeAge: lakeAge})
	a.indexCache = index.NewCache(ledger, cfg.IndexCacheBytes)
	a.metrics = newMetrics(a)
	return a, nil
}

// Open probes the store, joins the cluster, recovers its slots and serves.
// Errors: Unsupported (the store lacks put-if-absent), Unavailable,
// Unauthenticated, PermissionDenied, Exhausted, Conflict (the address is taken).
func (a *Agent) Open(ctx context.Context) error {
	if a.cfg.MemoryLimitBytes > 0 {
		debug.SetMemoryLimit(a.cfg.MemoryLimitBytes)
	}
	listener, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return errs.Wrap(errs.Conflict, "listen on "+a.cfg.Listen, err)
	}
	a.listener = listener
	if err := a.open(ctx); err != nil {
		_ = listener.Close()
		return err
	}
	return nil
}

func (a *Agent) open(ctx context.Context) error {
	if err := a.probeStore(ctx); err != nil {
		return err
	}
	id, err := metastore.NewIncarnation(a.clock(), rand.Reader)
	if err != nil {
		return err
	}
	if err := a.meta.open(ctx, a.store, id, a.logger); err != nil {
		return err
	}
	n, err := a.incarnate(ctx, id)
	if err != nil {
		_ = a.meta.Close(ctx)
		return err
	}
	a.current.Store(n)
	run, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.wg.Add(1)
	go func() { defer a.wg.Done(); a.supervise(run) }()
	a.serve()
	a.logger.Info("serving", "address", a.Addr(), "incarnation", n.id, "config", a.cfg.String())
	return nil
}

// probeStore asks the store whether it can hold Firn's data. One that does not
// answer is tried for a while, so that agent and store may start together, and
// no longer: an agent that waits for ever in silence helps nobody.
func (a *Agent) probeStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StartTimeout)
	defer cancel()
	told := make(chan struct{})
	soon := time.AfterFunc(a.cfg.StartTimeout/10, func() {
		a.logger.Warn("the store does not answer yet; trying on", "store", a.store.URL(), "start_timeout", a.cfg.StartTimeout)
		close(told)
	})
	defer func() {
		if !soon.Stop() {
			<-told // nothing is logged behind the caller's back
		}
	}()
	return probe.StartupProbe(ctx, a.store)
}

// Addr returns the listener's address.
func (a *Agent) Addr() string { return a.listener.Addr().String() }

// Incarnation returns the id of the current run, or "" in between two.
func (a *Agent) Incarnation() string {
	if n := a.current.Load(); n != nil {
		return n.id
	}
	return ""
}

// Store returns the store with its request ledger.
func (a *Agent) Store() *objstore.Ledger { return a.ledger }

// Failed returns a channel that is closed when the agent cannot go on; Err says why.
func (a *Agent) Failed() <-chan struct{} { return a.fatal }

// Err returns why the agent cannot go on, or nil.
func (a *Agent) Err() error {
	a.fatalMu.Lock()
	defer a.fatalMu.Unlock()
	return a.fatalErr
}

func (a *Agent) giveUp(err error) {
	a.fatalMu.Lock()
	defer a.fatalMu.Unlock()
	if a.fatalErr == nil {
		a.fatalErr = err
		close(a.fatal)
	}
}

// owner returns the current incarnation, or a retryable error in between two.
func (a *Agent) owner() (*incarnation, error) {
	n := a.current.Load()
	if n == nil || a.stopping.Load() {
		e := errs.New(errs.Unavailable, "this agent owns no slots at the moment; retry")
		e.RetryAfter = 200 * time.Millisecond
		return nil, e
	}
	return n, nil
}

// incarnationEnded is told once by an incarnation that cannot go on.
func (a *Agent) incarnationEnded(n *incarnation, cause error) {
	a.current.CompareAndSwap(n, nil)
	if errs.Is(cause, errs.Fenced) {
		a.metrics.fenced.Inc()
	}
	select {
	case a.ended <- endedIncarnation{n, cause}:
	default:
	}
}

// supervise replaces an incarnation that ended: fenced by others, the agent
// rejoins as a new one; fenced by its own agent id, it gives up, because
// another process runs under its name.
func (a *Agent) supervise(ctx context.Context) {
	for {
		var e endedIncarnation
		select {
		case <-ctx.Done():
			return
		case e = <-a.ended:
		}
		a.logger.Error("incarnation ended", "incarnation", e.n.id, "cause", e.cause)
		_ = e.n.close(ctx, false)
		if err := a.rejoin(ctx, e); err != nil {
			if ctx.Err() == nil {
				a.giveUp(err)
			}
			return
		}
	}
}

const (
	rejoinFirst = 200 * time.Millisecond
	rejoinMost  = 10 * time.Second
)

func (a *Agent) rejoin(ctx context.Context, e endedIncarnation) error {
	for pause := rejoinFirst; ; pause = min(2*pause, rejoinMost) {
		state, err := a.meta.Refresh(ctx)
		if err == nil {
			if dead, ok := state.Agent(e.n.id); ok && dead.State == metastore.Fenced && dead.FencedByAgent == a.cfg.AgentID {
				return errs.New(errs.Fenced, "another process runs as agent id %q and fenced this one (%s by %s): stop one of them or give it another --agent-id",
					a.cfg.AgentID, e.n.id, dead.FencedBy)
			}
			err = a.reincarnate(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		a.logger.Warn("rejoin failed; it is tried again", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// reincarnate joins anew. The metadata log writes under the incarnation's name,
// so it is opened again too.
func (a *Agent) reincarnate(ctx context.Context) error {
	id, err := metastore.NewIncarnation(a.clock(), rand.Reader)
	if err != nil {
		return err
	}
	if err := a.meta.open(ctx, a.store, id, a.logger); err != nil {
		return err
	}
	n, err := a.incarnate(ctx, id)
	if err != nil {
		return err
	}
	a.current.Store(n)
	a.logger.Info("rejoined", "incarnation", n.id)
	return nil
}

// Close ends the agent in order: it takes no more requests, finishes those
// under way, makes everything durable, releases its slots and leaves.
func (a *Agent) Close(ctx context.Context) error {
	if a.stopping.Swap(true) {
		return nil
	}
	var all []error
	if n := a.current.Load(); n != nil {
		n.endStreams()
	}
	if a.server != nil {
		if err := a.server.Shutdown(ctx); err != nil {
			all = append(all, errs.In("finish requests", err), a.server.Close())
		}
	}
	if err := a.streams.close(ctx); err != nil {
		all = append(all, errs.In("finish append streams", err))
	}
	if a.cancel != nil {
		a.cancel()
	}
	a.wg.Wait()
	if n := a.current.Load(); n != nil {
		if err := n.close(ctx, true); err != nil {
			all = append(all, errs.In("leave the cluster", err))
		}
	}
	all = append(all, a.meta.Close(ctx))
	return errors.Join(all...)
}

package lakehouse

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// scanEngine runs one scan: a planner opens files ahead and cuts them into
// units (row groups), units are fetched ahead within a budget of bytes, workers
// decode them in parallel, and the caller's goroutine consumes. Every stage is
// bounded; when the consumer stops, all stages stop.
type scanEngine struct {
	plan     *scanPlan
	parallel int
	budget   int64
	ordered  bool
}

// scanUnit is one row group to decode.
type scanUnit struct {
	file   *fileScan
	group  int
	exact  bool // the filter keeps every row of the group
	source *chunkSource
	weight int64
	ready  chan error     // one value, once the source is fetched
	out    chan scanPiece // closed by the worker when the unit is done without an error
}

// scanPiece is what a worker made of one decoded batch. First and next bound
// the offsets that it covers, also those of rows that the filter dropped; they
// are set with offsets only.
type scanPiece struct {
	batch       ScanBatch
	first, next int64
}

// run scans the files, in order when the engine is ordered, and calls consume
// in the caller's goroutine until it returns false. It returns the first error,
// after all that it started has ended.
func (e *scanEngine) run(ctx context.Context, files []DataFile, consume func(scanPiece) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	queue := make(chan *scanUnit, unitsAhead)
	order := make(chan *scanUnit, unitsAhead+e.parallel)
	shared := make(chan scanPiece, e.parallel*batchesAhead)
	budget := semaphore.NewWeighted(e.budget)

	g.Go(func() error {
		defer close(queue)
		defer close(order)
		return e.planUnits(gctx, g, files, budget, queue, order)
	})
	var workers sync.WaitGroup
	for range e.parallel {
		workers.Add(1)
		g.Go(func() error {
			defer workers.Done()
			return e.work(gctx, queue, shared, budget)
		})
	}
	g.Go(func() error {
		workers.Wait()
		close(shared)
		return nil
	})

	stopped := false
	deliver := func(p scanPiece) bool {
		stopped = stopped || !consume(p)
		return !stopped
	}
	if e.ordered {
		e.consumeOrdered(gctx, order, deliver)
	} else {
		e.consumeShared(gctx, shared, deliver)
	}
	if stopped {
		cancel()
		_ = g.Wait() // what is left are ends of our own cancel
		return nil
	}
	return g.Wait()
}

func (e *scanEngine) consumeShared(ctx context.Context, shared <-chan scanPiece, deliver func(scanPiece) bool) {
	for {
		select {
		case p, ok := <-shared:
			if !ok || !deliver(p) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (e *scanEngine) consumeOrdered(ctx context.Context, order <-chan *scanUnit, deliver func(scanPiece) bool) {
	for {
		var unit *scanUnit
		select {
		case u, ok := <-order:
			if !ok {
				return
			}
			unit = u
		case <-ctx.Done():
			return
		}
		for open := true; open; {
			select {
			case p, ok := <-unit.out:
				if open = ok; ok && !deliver(p) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// planUnits opens files ahead of their turn and hands their row groups on, in
// order, each once its bytes fit the budget.
func (e *scanEngine) planUnits(ctx context.Context, g *errgroup.Group, files []DataFile, budget *semaphore.Weighted, queue, order chan<- *scanUnit) error {
	type opening struct {
		scan *fileScan
		err  error
	}
	var ahead []chan opening
	next := 0
	for next < len(files) || len(ahead) > 0 {
		for next < len(files) && len(ahead) < openAhead {
			file, done := &files[next], make(chan opening, 1)
			next++
			ahead = append(ahead, done)
			g.Go(func() error {
				scan, err := e.plan.openFile(ctx, file)
				done <- opening{scan, err}
				return nil // the planner reports it, in file order
			})
		}
		opened := <-ahead[0]
		ahead = ahead[1:]
		if opened.err != nil {
			return opened.err
		}
		for _, unit := range opened.scan.units() {
			if err := e.dispatch(ctx, g, unit, budget, queue, order); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *scanEngine) dispatch(ctx context.Context, g *errgroup.Group, unit *scanUnit, budget *semaphore.Weighted, queue, order chan<- *scanUnit) error {
	file := unit.file
	// A window of the budget for each decoder, so that a huge row group does not
	// keep the others out.
	unit.source = newChunkSource(ctx, e.plan.store, file.pq.key, file.pq.size, file.pq.wantedChunks(unit.group, unit.set().columns), e.budget/int64(e.parallel))
	unit.weight = min(unit.source.bytes(), e.budget)
	unit.ready = make(chan error, 1)
	unit.out = make(chan scanPiece, batchesAhead)
	if err := budget.Acquire(ctx, unit.weight); err != nil {
		return err
	}
	g.Go(func() error {
		unit.ready <- unit.source.fetch(ctx)
		return nil // the unit's worker reports it
	})
	if e.ordered {
		select {
		case order <- unit:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case queue <- unit:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work decodes units until there are no more.
func (e *scanEngine) work(ctx context.Context, queue <-chan *scanUnit, shared chan<- scanPiece, budget *semaphore.Weighted) error {
	for unit := range queue {
		err := <-unit.ready
		if err == nil {
			out := shared
			if e.ordered {
				out = unit.out
			}
			err = e.plan.decode(ctx, unit, func(p scanPiece) error {
				select {
				case out <- p:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}
		budget.Release(unit.weight)
		if err != nil {
			return err // out stays open: an ordered consumer must not go on to the next unit
		}
		close(unit.out)
	}
	return nil
}

package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/wal"
)

// metrics are the agent's Prometheus series. Names carry units.
type metrics struct {
	registry *prometheus.Registry

	rowsIn       prometheus.Counter
	rowsSkipped  prometheus.Counter
	rowsRejected prometheus.Counter
	rowsOut      prometheus.Counter
	flushes      prometheus.Counter
	flushBytes   prometheus.Counter
	ackSeconds   prometheus.Histogram
	folds        prometheus.Counter
	foldRows     prometheus.Counter
	foldSeconds  prometheus.Histogram
	requests     *prometheus.CounterVec
	fenced       prometheus.Counter
}

func newMetrics(a *Agent) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "firn", Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "firn", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)})
		m.registry.MustRegister(h)
		return h
	}
	m.rowsIn = counter("rows_appended_total", "Rows made durable.")
	m.rowsSkipped = counter("rows_skipped_total", "Rows skipped because their producer sequence had been applied.")
	m.rowsRejected = counter("rows_rejected_total", "Rows refused.")
	m.rowsOut = counter("rows_read_total", "Rows returned to readers.")
	m.flushes = counter("wal_objects_total", "WAL objects written; one PUT each.")
	m.flushBytes = counter("wal_bytes_total", "Bytes of WAL objects written.")
	m.ackSeconds = histogram("append_seconds", "From a request's decoded rows to their acknowledgement.")
	m.folds = counter("folds_total", "Lake commits made by folds.")
	m.foldRows = counter("fold_rows_total", "Rows folded into the lake.")
	m.foldSeconds = histogram("fold_seconds", "Duration of folds.")
	m.fenced = counter("fenced_total", "Times this agent was fenced.")
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "firn", Name: "http_requests_total", Help: "Requests by route and status."}, []string{"route", "status"})
	m.registry.MustRegister(m.requests, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "firn", Name: "unfolded_bytes", Help: "Stored bytes of live segments, and 512 for each."},
		func() float64 {
			if n := a.current.Load(); n != nil {
				return float64(n.unfolded.Load())
			}
			return 0
		}))
	m.registry.MustRegister(&storeMetrics{ledger: a.ledger, ops: prometheus.NewDesc("firn_store_operations_total", "Object store operations.", []string{"op", "class"}, nil),
		bytes: prometheus.NewDesc("firn_store_bytes_total", "Object store bytes moved.", []string{"op", "class"}, nil)})
	return m
}

func (m *metrics) appended(r AppendResult, d time.Duration) {
	m.rowsIn.Add(float64(r.Rows))
	m.rowsSkipped.Add(float64(r.Skipped))
	m.ackSeconds.Observe(d.Seconds())
}

func (m *metrics) flushed(c wal.Committed) {
	m.flushes.Inc()
	m.flushBytes.Add(float64(c.Size))
}

func (m *metrics) folded(r lakehouse.FoldResult, d time.Duration) {
	m.folds.Inc()
	m.foldRows.Add(float64(r.Rows))
	m.foldSeconds.Observe(d.Seconds())
}

// storeMetrics exports the request ledger.
type storeMetrics struct {
	ledger     *objstore.Ledger
	ops, bytes *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s *storeMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- s.ops; ch <- s.bytes }

// Collect implements prometheus.Collector.
func (s *storeMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, line := range s.ledger.Snapshot() {
		ch <- prometheus.MustNewConstMetric(s.ops, prometheus.CounterValue, float64(line.Calls), line.Op.String(), string(line.Class))
		ch <- prometheus.MustNewConstMetric(s.bytes, prometheus.CounterValue, float64(line.Bytes), line.Op.String(), string(line.Class))
	}
}

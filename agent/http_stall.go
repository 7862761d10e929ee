package agent

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// stallPiece is how much of an answer has stall_timeout to leave by: a slow
// reader lives, as long as it takes this much in that time.
const stallPiece = 512 << 10

// unstalled ends answers whose reader takes nothing for the limit: a scan or a
// stream pins WAL objects and snapshots, and holds what it read ahead. Time in
// which the agent has nothing to say does not count.
func unstalled(next http.Handler, limit time.Duration, logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &stallWriter{ResponseWriter: w, control: http.NewResponseController(w), limit: limit}
		s.timer = time.AfterFunc(limit, func() {
			if !s.writing.Load() {
				return
			}
			logger.Warn("reader took nothing of its answer for stall_timeout; its connection is closed",
				"method", r.Method, "path", r.URL.Path, "reader", r.RemoteAddr, "stall_timeout", limit)
			_ = s.control.SetWriteDeadline(time.Now()) // fails the write that waits
		})
		defer s.timer.Stop()
		next.ServeHTTP(s, r)
	})
}

// stallWriter gives each piece of an answer its time.
type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
	timer   *time.Timer
	writing atomic.Bool
}

// Write implements http.ResponseWriter.
func (s *stallWriter) Write(p []byte) (n int, err error) {
	for {
		s.begin()
		took, err := s.ResponseWriter.Write(p[n:min(len(p), n+stallPiece)])
		s.end()
		if n += took; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// FlushError is what http.ResponseController calls.
func (s *stallWriter) FlushError() error {
	s.begin()
	defer s.end()
	return s.control.Flush()
}

// Flush implements http.Flusher, which connect-go asks for.
func (s *stallWriter) Flush() { _ = s.FlushError() }

// Unwrap lets http.ResponseController reach the connection.
func (s *stallWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stallWriter) begin() {
	s.writing.Store(true)
	s.timer.Reset(s.limit)
}

func (s *stallWriter) end() {
	s.writing.Store(false)
	s.timer.Stop()
}

package loadtest

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Metrics is one reading of an agent's /metrics page: series, as the page writes
// them ("name{label=\"value\"}"), and their values.
type Metrics map[string]float64

// ReadMetrics reads an agent's /metrics page.
func ReadMetrics(ctx context.Context, server string) (Metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read metrics: status %d", res.StatusCode)
	}
	m := Metrics{}
	sc := bufio.NewScanner(res.Body)
	for sc.Scan() {
		text := sc.Text()
		at := strings.LastIndexByte(text, ' ')
		if at < 0 || strings.HasPrefix(text, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(text[at+1:], 64); err == nil {
			m[text[:at]] = v
		}
	}
	return m, sc.Err()
}

// Sum adds the series of a name that hold every one of some labels, each given as
// it is written: `class="wal"`.
func (m Metrics) Sum(name string, labels ...string) float64 {
	var total float64
series:
	for series, v := range m {
		base, rest, _ := strings.Cut(series, "{")
		if base != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		total += v
	}
	return total
}

// puts counts plain and conditional puts of a class ("" = all).
func (m Metrics) puts(class string) float64 {
	var labels []string
	if class != "" {
		labels = append(labels, `class="`+class+`"`)
	}
	var total float64
	for series, v := range m {
		base, rest, _ := strings.Cut(series, "{")
		if base != "firn_store_operations_total" || !strings.Contains(strings.ToLower(rest), `op="put`) {
			continue
		}
		if len(labels) == 0 || strings.Contains(rest, labels[0]) {
			total += v
		}
	}
	return total
}

// difference turns two readings into the figures of the time between them.
func difference(before, after Metrics, requests int64) AgentFigures {
	delta := func(name string) int64 { return int64(after.Sum(name) - before.Sum(name)) }
	f := AgentFigures{
		WALObjects: delta("firn_wal_objects_total"), WALBytes: delta("firn_wal_bytes_total"), Folds: delta("firn_folds_total"),
		WALPuts: int64(after.puts("wal") - before.puts("wal")), Puts: int64(after.puts("") - before.puts("")),
	}
	if f.WALObjects > 0 {
		f.PutsPerFlush = float64(f.WALPuts) / float64(f.WALObjects)
	}
	if requests > 0 {
		f.PutsPerAck = float64(f.WALPuts) / float64(requests)
	}
	return f
}

// rssWatch samples an agent's resident memory.
type rssWatch struct {
	mu   sync.Mutex
	peak int64
	stop context.CancelFunc
	done chan struct{}
}

const rssPeriod = 200 * time.Millisecond

// watchRSS samples until finish: the kernel's own peak when the process is local,
// the gauge on /metrics otherwise.
func watchRSS(ctx context.Context, server string, pid int) *rssWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &rssWatch{stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(rssPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if pid > 0 {
				if rss, err := ProcessRSS(pid); err == nil {
					w.note(rss)
				}
			} else if m, err := ReadMetrics(ctx, server); err == nil {
				w.note(int64(m["process_resident_memory_bytes"]))
			}
		}
	}()
	return w
}

func (w *rssWatch) note(rss int64) {
	w.mu.Lock()
	w.peak = max(w.peak, rss)
	w.mu.Unlock()
}

// finish ends the sampling and returns the peak.
func (w *rssWatch) finish() int64 {
	w.stop()
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peak
}

// ProcessRSS returns the resident memory of a local process, in bytes.
func ProcessRSS(pid int) (int64, error) { return statusBytes(pid, "VmRSS:") }

// ProcessPeakRSS returns the most resident memory a local process ever had.
func ProcessPeakRSS(pid int) (int64, error) { return statusBytes(pid, "VmHWM:") }

func statusBytes(pid int, key string) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", pid, key)
}

// LoadAverage returns the 1-minute load average, or -1 where there is none.
func LoadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	v, err := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	if err != nil {
		return -1
	}
	return v
}

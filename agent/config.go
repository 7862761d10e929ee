package agent

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/firn-data/firn/internal/errs"
)

// Config is everything that an operator may set. The YAML names are those of
// the configuration file. Zero values mean the defaults of [DefaultConfig].
type Config struct {
	Store     string `yaml:"store"`     // store URL; default file://./firn-data
	Listen    string `yaml:"listen"`    // host:port of the one listener
	Advertise string `yaml:"advertise"` // host:port that others reach it by
	AgentID   string `yaml:"agent_id"`  // stable name; default host name and port
	Zone      string `yaml:"zone"`
	Token     string `yaml:"token"` // static bearer token; empty means no authentication

	Lease             time.Duration `yaml:"lease"`              // silence after which an agent is taken over
	FlushBytes        int64         `yaml:"flush_bytes"`        // WAL object size at which a flush is cut
	FlushAge          time.Duration `yaml:"flush_age"`          // age at which a flush is cut; 0 = 100 ms, 5 ms on local stores
	InFlight          int           `yaml:"in_flight"`          // WAL puts in flight
	StartTimeout      time.Duration `yaml:"start_timeout"`      // longest wait for a store that does not answer at start
	AckTimeout        time.Duration `yaml:"ack_timeout"`        // longest wait of a writer for the store
	ControlTimeout    time.Duration `yaml:"control_timeout"`    // longest wait of a control method for the store
	StallTimeout      time.Duration `yaml:"stall_timeout"`      // longest time that a reader takes nothing of its answer
	MaxPendingBytes   int64         `yaml:"max_pending_bytes"`  // rows taken in and not durable yet
	MaxUnfoldedBytes  int64         `yaml:"max_unfolded_bytes"` // live rows not in the lake yet; writers slow down beyond it
	MaxRequestBytes   int64         `yaml:"max_request_bytes"`  // one request, decompressed
	MaxRequests       int           `yaml:"max_requests"`       // requests with bodies decoded at once
	CacheBytes        int64         `yaml:"cache_bytes"`        // decoded live rows and object ranges
	IndexCacheBytes   int64         `yaml:"index_cache_bytes"`  // blocks of key indexes
	MemoryLimitBytes  int64         `yaml:"memory_limit_bytes"` // soft limit handed to the runtime; 0 = 768 MiB, negative = none
	FoldWorkers       int           `yaml:"fold_workers"`       // tables folded at once
	SafeAge           time.Duration `yaml:"safe_age"`           // age below which nothing is collected
	CollectInterval   time.Duration `yaml:"collect_interval"`   // pause between sweeps
	CheckpointObjects int           `yaml:"checkpoint_objects"` // WAL objects after which a checkpoint is due

	Iceberg IcebergConfig `yaml:"iceberg"`
}

// IcebergConfig says what the REST catalog hands to engines.
type IcebergConfig struct {
	Region          string            `yaml:"region"`            // default us-east-1
	S3Endpoint      string            `yaml:"s3_endpoint"`       // as engines reach it; default the store URL's
	VendCredentials bool              `yaml:"vend_credentials"`  // hand out the agent's own keys
	Properties      map[string]string `yaml:"properties"`        // added to every table's config
	AccessKeyID     string            `yaml:"access_key_id"`     // handed out when vend_credentials is set
	SecretAccessKey string            `yaml:"secret_access_key"` //
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Store: "file://./firn-data", Listen: "127.0.0.1:7070",
		Lease: 10 * time.Second, FlushBytes: 4 << 20, InFlight: 4, StartTimeout: 30 * time.Second, AckTimeout: 30 * time.Second, ControlTimeout: 30 * time.Second, StallTimeout: time.Minute,
		MaxPendingBytes: 128 << 20, MaxUnfoldedBytes: 1 << 30, MaxRequestBytes: 64 << 20, MaxRequests: 4,
		CacheBytes: 96 << 20, IndexCacheBytes: 128 << 20, MemoryLimitBytes: 768 << 20, FoldWorkers: 1,
		SafeAge: 10 * time.Minute, CollectInterval: time.Minute, CheckpointObjects: 256,
		Iceberg: IcebergConfig{Region: "us-east-1"},
	}
}

// LoadConfig reads a YAML file over the defaults. Unknown keys are refused.
func LoadConfig(path string) (Config, error) {
	cfg := DefaultConfig()
	data, err := os.ReadFile(path)
	if err != nil {
		return cfg, errs.Wrap(errs.Invalid, "read configuration", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil && err != io.EOF {
		return cfg, errs.Wrap(errs.Invalid, "read configuration "+path, err)
	}
	return cfg, nil
}

var agentIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// complete fills what depends on other settings and checks every bound.
func (c *Config) complete() error {
	def := DefaultConfig()
	setDefault(&c.Store, def.Store)
	setDefault(&c.Listen, def.Listen)
	setDefault(&c.Lease, def.Lease)
	setDefault(&c.FlushBytes, def.FlushBytes)
	setDefault(&c.InFlight, def.InFlight)
	setDefault(&c.StartTimeout, def.StartTimeout)
	setDefault(&c.AckTimeout, def.AckTimeout)
	setDefault(&c.ControlTimeout, def.ControlTimeout)
	setDefault(&c.StallTimeout, def.StallTimeout)
	setDefault(&c.MaxPendingBytes, def.MaxPendingBytes)
	setDefault(&c.MaxUnfoldedBytes, def.MaxUnfoldedBytes)
	setDefault(&c.MaxRequestBytes, def.MaxRequestBytes)
	setDefault(&c.MaxRequests, def.MaxRequests)
	setDefault(&c.CacheBytes, def.CacheBytes)
	setDefault(&c.IndexCacheBytes, def.IndexCacheBytes)
	setDefault(&c.MemoryLimitBytes, def.MemoryLimitBytes)
	setDefault(&c.FoldWorkers, def.FoldWorkers)
	setDefault(&c.CollectInterval, def.CollectInterval)
	setDefault(&c.CheckpointObjects, def.CheckpointObjects)
	setDefault(&c.Iceberg.Region, def.Iceberg.Region)
	if c.FlushAge == 0 {
		c.FlushAge = 100 * time.Millisecond
		if strings.HasPrefix(c.Store, "file:") || strings.HasPrefix(c.Store, "mem:") {
			c.FlushAge = 5 * time.Millisecond
		}
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return errs.New(errs.Invalid, "listen %q is not host:port: %v", c.Listen, err)
	}
	if c.AgentID == "" {
		name, err := os.Hostname()
		if err != nil || name == "" {
			name = "agent"
		}
		c.AgentID = name + "-" + port
	}
	if !agentIDPattern.MatchString(c.AgentID) {
		return errs.New(errs.Invalid, "agent id %q: letters, digits, '.', '_', '-' only, at most 128", c.AgentID)
	}
	if c.Advertise == "" {
		if host == "" || host == "0.0.0.0" || host == "::" {
			if name, err := os.Hostname(); err == nil {
				host = name
			}
		}
		c.Advertise = net.JoinHostPort(host, port)
	}
	return c.checkBounds()
}

func (c *Config) checkBounds() error {
	positive := map[string]int64{
		"lease": int64(c.Lease), "flush_bytes": c.FlushBytes, "flush_age": int64(c.FlushAge), "in_flight": int64(c.InFlight),
		"start_timeout": int64(c.StartTimeout), "ack_timeout": int64(c.AckTimeout), "control_timeout": int64(c.ControlTimeout), "stall_timeout": int64(c.StallTimeout), "max_pending_bytes": c.MaxPendingBytes, "max_unfolded_bytes": c.MaxUnfoldedBytes, "max_request_bytes": c.MaxRequestBytes,
		"max_requests": int64(c.MaxRequests), "cache_bytes": c.CacheBytes, "fold_workers": int64(c.FoldWorkers),
		"collect_interval": int64(c.CollectInterval), "checkpoint_objects": int64(c.CheckpointObjects),
	}
	for name, v := range positive {
		if v <= 0 {
			return errs.New(errs.Invalid, "%s must be positive", name)
		}
	}
	if c.SafeAge < 0 {
		return errs.New(errs.Invalid, "safe_age must not be negative")
	}
	if c.MaxPendingBytes < c.MaxRequestBytes {
		return errs.New(errs.Invalid, "max_pending_bytes (%d) must hold one request of max_request_bytes (%d)", c.MaxPendingBytes, c.MaxRequestBytes)
	}
	return nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// String describes the configuration for the log, without secrets.
func (c *Config) String() string {
	return fmt.Sprintf("store=%s listen=%s agent_id=%s flush=%dB/%s lease=%s", c.Store, c.Listen, c.AgentID, c.FlushBytes, c.FlushAge, c.Lease)
}

func discardLogger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

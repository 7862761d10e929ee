package metastore

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// Property describes one thing that a table may set.
type Property struct {
	Name    string
	Kind    PropertyKind
	Default string   // "" when unset means "off"
	Values  []string // of an enum
	Min     int64    // of a duration (ns), size (bytes) or count
	Max     int64
	Zero    bool // zero is allowed below Min, and means "off" or "never"
	Keyed   bool // only on primary-key tables
	Fixed   bool // cannot change once the table exists
	Doc     string
}

// PropertyKind says how a property's text is read.
type PropertyKind uint8

// The kinds of property values.
const (
	Duration   PropertyKind = iota + 1 // 250ms, 60s, 5m, 12h, 7d, 2w; "1h30m"
	Size                               // 4194304, 64MiB, 1GB
	Count                              // a whole number
	Enum                               // one of Values
	ColumnName                         // a column of the table
)

// Names of the properties.
const (
	PropFoldInterval       = "fold_interval"
	PropFoldBytes          = "fold_bytes"
	PropMinFoldInterval    = "min_fold_interval"
	PropRetention          = "retention"
	PropProducerExpiry     = "producer_expiry"
	PropTargetFileBytes    = "target_file_bytes"
	PropCompression        = "compression"
	PropEncoding           = "encoding"
	PropFormatVersion      = "iceberg.format_version"
	PropSnapshotsKept      = "iceberg.snapshots_kept"
	PropMergeEngine        = "merge_engine"
	PropVersionColumn      = "version_column"
	PropDeleteBehavior     = "delete_behavior"
	PropChangelogImage     = "changelog_image"
	PropNoopUpdates        = "noop_updates"
	PropChangelogRetention = "changelog_retention"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
	mib  = 1 << 20
)

// Properties are all the properties there are, in the order in which documents
// list them. The names, meanings and defaults are part of the API.
var Properties = []Property{
	{Name: PropFoldInterval, Kind: Duration, Default: "60s", Min: int64(100 * time.Millisecond), Max: int64(30 * day), Zero: true,
		Doc: "How long durable rows may wait before they are folded into the Iceberg table. 0: folded by size or on demand only."},
	{Name: PropFoldBytes, Kind: Size, Default: "64MiB", Min: 64 << 10, Max: 16 << 30,
		Doc: "How many bytes of rows a bucket may hold unfolded before it is folded without waiting for the interval."},
	{Name: PropMinFoldInterval, Kind: Duration, Default: "2s", Min: int64(10 * time.Millisecond), Max: int64(day), Zero: true,
		Doc: "The shortest time between two folds that loads through the Iceberg catalog cause. 0: every load folds."},
	{Name: PropRetention, Kind: Duration, Min: int64(time.Second), Max: int64(100 * 365 * day),
		Doc: "How long rows are kept after they were written; whole files are dropped once all their rows are older. Unset: for ever."},
	{Name: PropProducerExpiry, Kind: Duration, Default: "0", Min: int64(time.Minute), Max: int64(10 * 365 * day), Zero: true,
		Doc: "How long a producer may be silent before what it wrote is forgotten and repeats are no longer recognised. 0: never."},
	{Name: PropTargetFileBytes, Kind: Size, Default: "128MiB", Min: mib, Max: 8 << 30,
		Doc: "The size that folds and compaction aim at for a Parquet file."},
	{Name: PropCompression, Kind: Enum, Default: "zstd", Values: []string{"zstd", "snappy", "gzip", "none"},
		Doc: "Compression of Parquet pages."},
	{Name: PropEncoding, Kind: Enum, Default: "plain", Values: []string{"plain", "delta"},
		Doc: "Encoding of integers and times in Parquet. delta is smaller and faster to write; some engines read it slowly."},
	{Name: PropFormatVersion, Kind: Count, Default: "2", Min: 2, Max: 3,
		Doc: "Iceberg format version. It can be raised, never lowered."},
	{Name: PropSnapshotsKept, Kind: Count, Default: "100", Min: 1, Max: 10_000,
		Doc: "How many Iceberg snapshots are kept; commits slow down with their number."},
	{Name: PropMergeEngine, Kind: Enum, Default: "last_row", Values: []string{"last_row", "first_row", "versioned", "aggregation"}, Keyed: true, Fixed: true,
		Doc: "Which row wins when a key is written again."},
	{Name: PropVersionColumn, Kind: ColumnName, Keyed: true, Fixed: true,
		Doc: "The column that the versioned merge engine compares."},
	{Name: PropDeleteBehavior, Kind: Enum, Values: []string{"allow", "ignore", "reject"}, Keyed: true,
		Doc: "What a delete does. Unset: allow with last_row, ignore with the other merge engines."},
	{Name: PropChangelogImage, Kind: Enum, Default: "full", Values: []string{"full", "after"}, Keyed: true, Fixed: true,
		Doc: "Whether changes carry the row before an update."},
	{Name: PropNoopUpdates, Kind: Enum, Default: "drop", Values: []string{"drop", "keep"}, Keyed: true,
		Doc: "Whether an update that changes no value is a change."},
	{Name: PropChangelogRetention, Kind: Duration, Default: "7d", Min: int64(time.Minute), Max: int64(10 * 365 * day), Zero: true, Keyed: true,
		Doc: "How long folded changes are kept in the table's $changelog. 0: only while they are live, which is all that this version does."},
}

// propertyByName finds a property's description.
func propertyByName(name string) (*Property, bool) {
	for i := range Properties {
		if Properties[i].Name == name {
			return &Properties[i], true
		}
	}
	return nil, false
}

// unknownProperty makes the error for a name that is none, with the nearest ones.
func unknownProperty(name string, keyed bool) error {
	var names []string
	for _, p := range Properties {
		if keyed || !p.Keyed {
			names = append(names, p.Name)
		}
	}
	if near := nearest(name, names); near != "" {
		return errs.New(errs.Invalid, "unknown property %q; did you mean %q?", name, near)
	}
	return errs.New(errs.Invalid, "unknown property %q; the properties are %s", name, strings.Join(names, ", "))
}

// checkProperties refuses properties that are unknown, malformed, out of range,
// or mean nothing on such a table.
func checkProperties(t *Table) error {
	for _, name := range sortedKeys(t.Properties) {
		p, ok := propertyByName(name)
		if !ok {
			return unknownProperty(name, t.Keyed())
		}
		if p.Keyed && !t.Keyed() {
			return errs.New(errs.Invalid, "property %q needs a primary key, and the table has none", name)
		}
		if err := p.check(t.Properties[name], t); err != nil {
			return err
		}
	}
	return checkEngine(t)
}

// checkEngine checks what the merge engine needs from other properties and columns.
func checkEngine(t *Table) error {
	if !t.Keyed() {
		return nil
	}
	engine := t.MergeEngine()
	column, set := t.Properties[PropVersionColumn]
	switch {
	case engine == "versioned" && !set:
		return errs.New(errs.Invalid, "merge_engine versioned needs the property %q", PropVersionColumn)
	case engine != "versioned" && set:
		return errs.New(errs.Invalid, "property %q needs merge_engine versioned, not %s (column %q)", PropVersionColumn, engine, column)
	}
	for _, f := range t.Current().Fields {
		if f.Aggregate != "" && engine != "aggregation" {
			return errs.New(errs.Invalid, "column %q: aggregate needs merge_engine aggregation, not %s", f.Name, engine)
		}
	}
	return nil
}

func (p *Property) check(text string, t *Table) error {
	switch p.Kind {
	case Duration:
		d, err := ParseDuration(text)
		if err != nil {
			return errs.New(errs.Invalid, "property %q is %q: %v", p.Name, text, err)
		}
		return p.inRange(int64(d), text, func(n int64) string { return formatDuration(time.Duration(n)) })
	case Size:
		n, err := ParseSize(text)
		if err != nil {
			return errs.New(errs.Invalid, "property %q is %q: %v", p.Name, text, err)
		}
		return p.inRange(n, text, formatSize)
	case Count:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return errs.New(errs.Invalid, "property %q is %q: a whole number is expected", p.Name, text)
		}
		return p.inRange(n, text, func(n int64) string { return strconv.FormatInt(n, 10) })
	case Enum:
		if !slices.Contains(p.Values, text) {
			return errs.New(errs.Invalid, "property %q is %q: it is one of %s", p.Name, text, strings.Join(p.Values, ", "))
		}
	case ColumnName:
		f, ok := t.Current().Field(text)
		if !ok {
			return errs.New(errs.Invalid, "property %q: %v", p.Name, unknownColumn(text, t.Current()))
		}
		if !versionKind(f.Type.Kind) {
			return errs.New(errs.Invalid, "property %q: column %q is %s; int, long, date, time, timestamp or timestamptz is expected", p.Name, text, f.Type)
		}
	}
	return nil
}

func (p *Property) inRange(n int64, text string, show func(int64) string) error {
	if n == 0 && p.Zero || n >= p.Min && n <= p.Max {
		return nil
	}
	off := ""
	if p.Zero {
		off = ", or 0"
	}
	return errs.New(errs.Invalid, "property %q is %q: it is from %s to %s%s", p.Name, text, show(p.Min), show(p.Max), off)
}

// ParseDuration reads Go's durations and also days and weeks ("7d", "1d12h",
// "2w"). A bare 0 is zero; other numbers need a unit.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest := s
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"w", week}, {"d", day}} {
		head, tail, ok := strings.Cut(rest, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(head, 10, 31)
		if err != nil || time.Duration(n) > (math.MaxInt64-total)/unit.d {
			return 0, errs.New(errs.Invalid, "a duration like 250ms, 60s, 12h or 7d is expected")
		}
		total += time.Duration(n) * unit.d
		if rest = tail; rest == "" {
			return total, nil
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > math.MaxInt64-total {
		return 0, errs.New(errs.Invalid, "a duration like 250ms, 60s, 12h or 7d is expected")
	}
	return total + d, nil
}

func formatDuration(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}

var sizeUnits = []struct {
	name string
	n    int64
}{
	{"gib", 1 << 30}, {"mib", 1 << 20}, {"kib", 1 << 10}, {"gb", 1e9}, {"mb", 1e6}, {"kb", 1e3},
	{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"b", 1}, {"", 1},
}

// ParseSize reads a number of bytes: "4194304", "64MiB" (powers of two), "64MB"
// (powers of ten), "64M" (powers of two).
func ParseSize(s string) (int64, error) {
	low := strings.ToLower(strings.TrimSpace(s))
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(low, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.n {
			break
		}
		return n * u.n, nil
	}
	return 0, errs.New(errs.Invalid, "a number of bytes like 4194304, 64MiB or 1GB is expected")
}

func formatSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n > 0 && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + strings.ToUpper(u.name[:1]) + "iB"
		}
	}
	return strconv.FormatInt(n, 10)
}

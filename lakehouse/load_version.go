package lakehouse

import (
	"context"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// version is one parsed vN.metadata.json.
type version struct {
	number int64
	key    string
	meta   table.Metadata
	oldest int64     // the oldest version that may still stand; 0 is unknown
	size   int       // of the JSON
	seen   time.Time // when it was last proved to be the newest
}

// verification says how hard newest proves that a version is the newest one.
type verification uint8

const (
	// verifyAged trusts an absent v(N+1) when v(N) was proved less than trustAge
	// ago; for reads.
	verifyAged verification = iota
	// verifyLater leaves the proof to the commit, which must make it anyway
	// (docs/decisions/0004-lake-commit.md).
	verifyLater
)

// trustAge is how long a read may believe that a version it has proved once was
// not deleted since. Versions are deleted only after KeepVersions newer ones.
const trustAge = time.Minute

// newest returns the table's newest metadata version.
//
// It probes for the successor of the cached version N. Absent is the common case, and
// believed for trustAge after N was proved to be the newest. A successor that is there
// proves nothing: long ago freed, it may have been put again by a process that slept,
// or by a put that was held up in the network, and its predecessor likewise. What a
// listing shows as the highest version is the newest one: that is never deleted, and
// nobody puts beyond the successor of a version that it has read. INVARIANT(lake-3).
func (l *Lake) newest(ctx context.Context, def TableDef, how verification) (*version, error) {
	v, ok := l.versions.get(def.Prefix)
	if !ok || l.opts.Now().Sub(v.seen) > l.opts.RelistAge {
		return l.relist(ctx, def)
	}
	next, err := l.readVersion(ctx, def, v.number+1)
	absent := errs.Is(err, errs.NotFound)
	if err != nil && !absent {
		return nil, err
	}
	if absent && (how == verifyLater || l.opts.Now().Sub(v.seen) < trustAge) {
		return v, nil
	}
	return l.relist(ctx, def, v, next)
}

// relist finds the newest version with one LIST; known ones need not be read again.
func (l *Lake) relist(ctx context.Context, def TableDef, known ...*version) (*version, error) {
	for {
		span, err := l.listVersions(ctx, def)
		if err != nil {
			return nil, err
		}
		if span.highest == 0 {
			l.versions.remove(def.Prefix)
			return nil, errs.New(errs.NotFound, "no table metadata under %s", def.metadataPrefix())
		}
		for _, v := range known {
			if v != nil && v.number == span.highest {
				found := *v
				found.oldest = span.lowest
				return l.remember(def, &found), nil
			}
		}
		v, err := l.readVersion(ctx, def, span.highest)
		if errs.Is(err, errs.NotFound) { // the list was older than KeepVersions commits
			continue
		}
		if err != nil {
			return nil, err
		}
		v.oldest = span.lowest
		return l.remember(def, v), nil
	}
}

// versionSpan is the lowest and the highest version that a listing showed; 0 = none.
type versionSpan struct{ lowest, highest int64 }

func (l *Lake) listVersions(ctx context.Context, def TableDef) (span versionSpan, err error) {
	for info, err := range l.store.List(ctx, def.metadataPrefix()+"v", "") {
		if err != nil {
			return versionSpan{}, err
		}
		if n, ok := parseVersionKey(info.Key); ok {
			span.highest = max(span.highest, n)
			if span.lowest == 0 || n < span.lowest {
				span.lowest = n
			}
		}
	}
	return span, nil
}

func (l *Lake) readVersion(ctx context.Context, def TableDef, n int64) (*version, error) {
	key := def.versionKey(n)
	body, _, err := l.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.parseVersion(def, n, body)
}

func (l *Lake) parseVersion(def TableDef, n int64, body []byte) (*version, error) {
	key := def.versionKey(n)
	meta, err := table.ParseMetadataBytes(body)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "iceberg metadata %s: %v", key, err)
	}
	if def.UUID != "" && meta.TableUUID().String() != def.UUID {
		return nil, errs.New(errs.Conflict, "iceberg metadata %s belongs to table %s, not %s: it was dropped and created again",
			key, meta.TableUUID(), def.UUID)
	}
	return &version{number: n, key: key, meta: meta, size: len(body)}, nil
}

// remember makes v the cached version, proved now. It returns v's copy in the cache.
func (l *Lake) remember(def TableDef, v *version) *version {
	kept := *v
	kept.seen = l.opts.Now()
	l.versions.put(def.Prefix, &kept, kept.size)
	return &kept
}

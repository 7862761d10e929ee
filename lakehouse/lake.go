package lakehouse

import (
	"log/slog"
	"strings"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/objcache"
)

// Bounds of what one Lake holds in memory.
const (
	// maxCachedMetadataBytes bounds the parsed table metadata that is kept. A
	// table that fell out costs one LIST when it is opened again.
	maxCachedMetadataBytes = 64 << 20 // of JSON; parsed it weighs about three times that
	// maxCachedFiles bounds the data file entries kept over all decoded
	// manifests; an entry with 20 columns of statistics weighs about 2 KiB.
	maxCachedFiles = 32 << 10
	// maxCachedManifestRefs bounds the entries of decoded manifest lists.
	maxCachedManifestRefs = 64 << 10
	// maxRefused bounds the orphans that are remembered as dead and could not be deleted.
	maxRefused = 16 << 10
)

// Options configures a Lake. The zero value is ready to use.
type Options struct {
	Logger *slog.Logger
	// Location is the URI under which query engines find the store's root, such
	// as "s3://bucket/prefix"; empty derives it from the store's URL.
	Location string
	// Now is the wall clock: snapshot timestamps, ages. Nil: time.Now.
	Now func() time.Time
	// NewID returns a fresh random id for snapshots, commits and files. Nil: random UUIDs.
	NewID func() uuid.UUID
	// Create says how unknown outcomes of commits are resolved.
	Create objstore.CreatePolicy

	// TargetFileBytes is where a data file is rolled (default 64 MiB).
	TargetFileBytes int64
	// RowGroupRows and RowGroupBytes bound one Parquet row group
	// (defaults 1 Mi rows and 32 MiB of Arrow memory).
	RowGroupRows  int64
	RowGroupBytes int64
	// MaxOpenFiles bounds the data files that a fold writes at once, and
	// MaxFoldBytes the memory that they take together (defaults 64, 192 MiB).
	MaxOpenFiles int
	MaxFoldBytes int64
	// Parallel is how many files are encoded at once (default 2).
	Parallel int
	// FetchCacheBytes bounds the decoded column chunks that FetchRows keeps (default
	// 128 MiB of Arrow memory).
	FetchCacheBytes int64

	// KeepVersions bounds the metadata versions (vN.metadata.json) of a table
	// (default 100).
	KeepVersions int64
	// SafeAge is how old, by the store's clock, an unreferenced object must be
	// before a sweep deletes it: longer than any upload can take (default 1 h;
	// negative: none, for tests).
	SafeAge time.Duration
	// RelistAge is when a cached version is no longer trusted without a LIST
	// (default 10 min).
	RelistAge time.Duration
}

func (o Options) withDefaults(store objstore.Store) Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.New
	}
	if o.Location == "" {
		o.Location = locationOf(store.URL())
	}
	o.Location = strings.TrimRight(o.Location, "/")
	setDefault(&o.TargetFileBytes, 64<<20)
	setDefault(&o.RowGroupRows, 1<<20)
	setDefault(&o.RowGroupBytes, 32<<20)
	setDefault(&o.MaxOpenFiles, 64)
	setDefault(&o.MaxFoldBytes, 192<<20)
	setDefault(&o.Parallel, 2)
	setDefault(&o.FetchCacheBytes, 128<<20)
	setDefault(&o.KeepVersions, 100)
	if o.SafeAge == 0 {
		o.SafeAge = time.Hour
	}
	setDefault(&o.RelistAge, 10*time.Minute)
	return o
}

func setDefault[T int | int64 | time.Duration](v *T, fallback T) {
	if *v <= 0 {
		*v = fallback
	}
}

// locationOf turns a store's URL into the URI prefix that query engines use:
// without query parameters. Nothing is percent-encoded or decoded, because
// engines do neither; a file store's URL is "file://" and its plain path.
func locationOf(storeURL string) string {
	if strings.HasPrefix(storeURL, "file://") {
		return storeURL
	}
	base, _, _ := strings.Cut(storeURL, "?")
	return base
}

// Lake is every table's Iceberg directory in one store. It is safe for
// concurrent use; it owns no goroutines.
type Lake struct {
	store     objstore.Store
	opts      Options
	versions  *lru[string, *version]               // by table prefix: the newest known version
	lists     *lru[string, []iceberg.ManifestFile] // by manifest list URI
	manifests *lru[string, []DataFile]             // by manifest URI: live entries
	footers   *lru[string, *parquetFile]           // by data file key
	chunks    *lru[chunkKey, arrow.Array]          // decoded column chunks that rows were fetched from
	ranges    *objcache.Cache                      // keeps nothing: equal reads at one time share a request
	indexes   *lru[string, []string]               // by index manifest key: its runs
	deletes   *lru[string, []DeleteFile]           // by delete manifest URI: live entries
	deleted   *lru[deletedKey, *roaring.Bitmap]    // rows of a data file
	scans     scanShares
	refused   *lru[string, struct{}] // orphans that no commit can name any more
}

// Open makes a Lake over store. It sends no request.
func Open(store objstore.Store, o Options) *Lake {
	o = o.withDefaults(store)
	ranges, err := objcache.New(store, objcache.Options{})
	if err != nil {
		panic("object cache options: " + err.Error())
	}
	return &Lake{
		store:     store,
		opts:      o,
		versions:  newLRU[string, *version](maxCachedMetadataBytes),
		lists:     newLRU[string, []iceberg.ManifestFile](maxCachedManifestRefs),
		manifests: newLRU[string, []DataFile](maxCachedFiles),
		footers:   newLRU[string, *parquetFile](maxCachedFooterBytes),
		chunks:    newLRU[chunkKey, arrow.Array](int(o.FetchCacheBytes)),
		ranges:    ranges,
		indexes:   newLRU[string, []string](maxCachedRunNames),
		deletes:   newLRU[string, []DeleteFile](maxCachedFiles),
		deleted:   newLRU[deletedKey, *roaring.Bitmap](maxCachedDeletedBytes),
		refused:   newLRU[string, struct{}](maxRefused),
	}
}

// Location returns the absolute URI of a table's directory.
func (l *Lake) Location(def TableDef) string { return l.uri(def.Prefix) }

// uri returns the absolute URI of a key in the store.
func (l *Lake) uri(key string) string { return l.opts.Location + "/" + key }

// key returns the store key of an absolute URI, if it lies in this store.
func (l *Lake) key(uri string) (string, bool) {
	return strings.CutPrefix(uri, l.opts.Location+"/")
}

package agent

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
)

// icebergBackend is what the REST catalog serves.
type icebergBackend struct{ a *Agent }

// ListNamespaces implements lakehouse.CatalogBackend.
func (b icebergBackend) ListNamespaces(ctx context.Context) ([]string, error) {
	s, err := b.a.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range s.Databases() {
		names = append(names, d.Name)
	}
	return names, nil
}

// ListTables implements lakehouse.CatalogBackend.
func (b icebergBackend) ListTables(ctx context.Context, database string) ([]string, error) {
	s, err := b.a.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.Database(database); err != nil {
		return nil, err
	}
	var names []string
	for _, t := range s.Tables(database) {
		names = append(names, t.Name)
	}
	return names, nil
}

// Load implements lakehouse.CatalogBackend. A load that folds first is spaced by
// the table's min_fold_interval: within it, the load waits for its turn only
// when rows wait too, so that what was acknowledged before the load is in it.
func (b icebergBackend) Load(ctx context.Context, database, name string, foldFirst bool) (string, []byte, error) {
	if strings.HasSuffix(name, lakehouse.SuffixChangelog) {
		return "", nil, errs.New(errs.NotFound, "table %s.%s: only primary-key tables have a changelog", database, strings.TrimSuffix(name, lakehouse.SuffixChangelog))
	}
	a := b.a
	def, err := a.table(ctx, database, name)
	if err != nil {
		return "", nil, err
	}
	lakeDef := a.lakeDef(def)
	if foldFirst {
		n, err := a.owner()
		if err != nil {
			return "", nil, err
		}
		if err := n.foldForLoad(ctx, def); err != nil {
			return "", nil, err
		}
	}
	snap, err := a.loadLake(ctx, lakeDef)
	if err != nil {
		return "", nil, err
	}
	body, err := snap.MetadataJSON(ctx)
	return snap.Location(), body, err
}

// catalogOptions says where engines find the files.
func (a *Agent) catalogOptions() lakehouse.CatalogOptions {
	cfg := a.cfg.Iceberg
	opts := lakehouse.CatalogOptions{Properties: map[string]string{}, Warehouse: a.lake.Warehouse(), Logger: a.logger}
	endpoint, region, pathStyle := cfg.S3Endpoint, cfg.Region, false
	if u, err := url.Parse(a.cfg.Store); err == nil && u.Scheme == "s3" {
		q := u.Query()
		if endpoint == "" {
			endpoint = q.Get("endpoint")
		}
		if r := q.Get("region"); r != "" {
			region = r
		}
		pathStyle = q.Get("path_style") == "true" || endpoint != ""
	}
	for k, v := range lakehouse.StorageProperties(endpoint, region, pathStyle) {
		opts.Properties[k] = v
	}
	for k, v := range cfg.Properties {
		opts.Properties[k] = v
	}
	if cfg.VendCredentials {
		opts.Credentials = lakehouse.S3Credentials(cfg.AccessKeyID, cfg.SecretAccessKey, "")
	}
	return opts
}

// storeNow returns the time by the store's clock: that of this incarnation's newest heartbeat.
func (a *Agent) storeNow(ctx context.Context, incarnation string) (time.Time, error) {
	key := "agents/" + incarnation
	info, err := a.store.Head(ctx, key)
	if err != nil {
		return time.Time{}, errs.In("read the store's clock", err)
	}
	return info.ModTime, nil
}

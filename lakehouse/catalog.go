package lakehouse

import (
	"context"
	"log/slog"
	"maps"
	"strings"
)

// Suffixes of table names in the Iceberg REST catalog. `$` cannot occur in a
// table's own name, so they are never ambiguous.
const (
	// SuffixLake names a table's last committed snapshot, without a fold.
	SuffixLake = "$lake"
	// SuffixChangelog names a primary-key table's changelog in the lake.
	SuffixChangelog = "$changelog"
)

// CatalogBackend is what the Iceberg REST catalog serves. Its errors are
// classified by package errs; NotFound from ListTables means that the database
// does not exist, NotFound from Load that the table (or its database) does not.
type CatalogBackend interface {
	// ListNamespaces returns the databases' names, in any order.
	ListNamespaces(ctx context.Context) ([]string, error)
	// ListTables returns the names of a database's tables, in any order.
	ListTables(ctx context.Context, database string) ([]string, error)
	// Load returns the location (a full URI) and the JSON of a table's current
	// Iceberg metadata. With foldFirst, everything acknowledged before the call
	// is in it. The table may carry SuffixChangelog. The bytes are only read.
	Load(ctx context.Context, database, table string, foldFirst bool) (metadataLocation string, metadataJSON []byte, err error)
}

// CatalogOptions configures NewCatalogHandler.
type CatalogOptions struct {
	// Properties are sent with the catalog's configuration and with each loaded
	// table: where and how engines read the files. See StorageProperties.
	Properties map[string]string
	// Credentials are sent with each loaded table; empty unless the operator
	// asked for them to be handed out. They are never logged.
	Credentials map[string]string
	// Warehouse is the location that the configuration names as `warehouse`;
	// empty leaves it out.
	Warehouse string
	// Logger gets one line for each request that failed on our side.
	Logger *slog.Logger
}

// StorageProperties returns the Iceberg FileIO properties for files in an
// S3-compatible store. Endpoint is empty for AWS itself; a bucket must not be
// part of it. The region is always sent, because several engines refuse to
// start without one: "us-east-1" when region is empty.
func StorageProperties(endpoint, region string, pathStyle bool) map[string]string {
	if region == "" {
		region = "us-east-1"
	}
	props := map[string]string{"s3.region": region, "client.region": region}
	if endpoint != "" {
		if !strings.Contains(endpoint, "://") {
			endpoint = "https://" + endpoint
		}
		props["s3.endpoint"] = strings.TrimRight(endpoint, "/") + "/"
	}
	if pathStyle {
		props["s3.path-style-access"] = "true"
	}
	return props
}

// S3Credentials returns the Iceberg FileIO properties that hand out a key; the
// session token may be empty.
func S3Credentials(accessKeyID, secretAccessKey, sessionToken string) map[string]string {
	props := map[string]string{"s3.access-key-id": accessKeyID, "s3.secret-access-key": secretAccessKey}
	if sessionToken != "" {
		props["s3.session-token"] = sessionToken
	}
	return props
}

// properties returns a copy of the configured properties in which a region is
// always present and the endpoint ends in a slash.
func (o CatalogOptions) properties() map[string]string {
	props := maps.Clone(o.Properties)
	if props == nil {
		props = map[string]string{}
	}
	for _, key := range []string{"s3.region", "client.region"} {
		if props[key] == "" {
			props[key] = "us-east-1"
		}
	}
	if endpoint := props["s3.endpoint"]; endpoint != "" && !strings.HasSuffix(endpoint, "/") {
		props["s3.endpoint"] = endpoint + "/"
	}
	return props
}

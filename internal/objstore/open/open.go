// Package open chooses a store's driver by its URL.
//
// It is the only package that imports every driver, and with them the clients of
// AWS, Google Cloud and Azure: import it in programs, not in libraries.
//
//	mem://NAME                    in this process, shared by name
//	file://./folder               a folder, relative or absolute (file:///var/firn)
//	s3://bucket/prefix?endpoint=URL&region=R&path_style=true
//	gs://bucket/prefix
//	azblob://container/prefix
package open

import (
	"context"
	"strings"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/azstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
	"github.com/firn-data/firn/internal/objstore/gcsstore"
	"github.com/firn-data/firn/internal/objstore/s3store"
)

// Options are what a URL does not say. The zero value is ready to use.
type Options struct {
	S3 s3store.Options // defaults for s3://; the URL's own parameters win
}

// Open opens the store that a URL names. It finds credentials but sends nothing
// to the store; probe.StartupProbe does.
func Open(ctx context.Context, url string, o Options) (objstore.Store, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errs.New(errs.Invalid, "the store URL names no scheme; a folder is written file://./firn-data or file:///path")
	}
	switch scheme {
	case "mem":
		return objstore.SharedMem(rest), nil
	case "file":
		folder, err := filestore.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return opened(filestore.Open(folder))
	case "s3":
		options, err := s3store.ParseURL(url, o.S3)
		if err != nil {
			return nil, err
		}
		return opened(s3store.Open(ctx, options))
	case "gs":
		return opened(gcsstore.Open(ctx, url))
	case "azblob":
		return opened(azstore.Open(ctx, url))
	}
	return nil, errs.New(errs.Invalid, "the store URL's scheme %q is none of mem, file, s3, gs, azblob", scheme)
}

// opened keeps a driver's nil from becoming a store that is not nil.
func opened[S objstore.Store](s S, err error) (objstore.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Package azstore keeps a store in an Azure Blob container: the azblob:// driver,
// through gocloud.dev/blob.
//
// It owns the bucket handle and the translation of its errors. It refuses
// gocloud's other drivers: its file driver is not atomic, its S3 driver not
// direct enough, and its Google driver brings a gRPC stack that Firn never calls.
// filestore, s3store and gcsstore do their work.
//
// Put-if-absent is WriterOptions.IfNotExist (If-None-Match: *). Azure's own
// client retries requests, and the time limit of each call here bounds them;
// objstore.Create resolves the rest.
//
// gocloud says NotFound for an unknown host; here the status below it decides, so
// that a store that cannot be read never looks empty.
//
// A suffix read costs two requests (size, then range), because gocloud's ranges
// start at the front. Azure lists from the prefix's start and skips.
package azstore

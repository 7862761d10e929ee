// Package cloudstore keeps a store in a Google Cloud Storage bucket or an Azure
// Blob container: the gs:// and azblob:// drivers, through gocloud.dev/blob.
//
// It owns the bucket handle and the translation of its errors. It refuses
// gocloud's file and S3 drivers, which are not atomic or not direct enough;
// filestore and s3store do their work.
//
// Put-if-absent is WriterOptions.IfNotExist (ifGenerationMatch=0 on GCS,
// If-None-Match: * on Azure). The providers' own clients retry requests, and the
// time limit of each call here bounds them; objstore.Create resolves the rest.
//
// gocloud says NotFound for a GCS 403 and for an unknown host; here the status
// below it decides, so that a store that cannot be read never looks empty.
//
// A suffix read costs two requests (size, then range), because gocloud's ranges
// start at the front. Azure lists from the prefix's start and skips.
package cloudstore

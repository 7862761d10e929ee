// Package gcsstore keeps a store in a Google Cloud Storage bucket: the gs://
// driver, on Google's JSON API client.
//
// It owns the client, its credentials, retries and the translation of its
// errors. It refuses parameters that it does not know, and credentials in a URL.
//
// Put-if-absent is ifGenerationMatch=0; a loser is answered 412. The larger
// client, cloud.google.com/go/storage, is left out: with its gRPC transport it
// makes the binary a fifth larger, and does nothing here that one request of the
// JSON API does not.
//
// A request is tried up to maxAttempts times with jittered backoff, the same
// bytes at the same name, each attempt within its own time limit. A suffix is
// read in one request.
package gcsstore

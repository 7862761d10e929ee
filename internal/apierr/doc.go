// Package apierr is the one place where error classes (package errs) meet the
// wire: Connect codes, HTTP statuses, and the JSON error body of every route
// but the Iceberg ones.
//
//	{"code": "out_of_range", "message": "…", "details": [{"bucket": 0, "earliest": 12, "end": 40}]}
//
// A Connect error carries a firn.v1.ErrorInfo detail with the class (finer than
// the code), the retry hint and the same details; plain routes write the details
// as they are. [Connect] and [From] are each other's inverse for class, message,
// details and retry hint.
package apierr

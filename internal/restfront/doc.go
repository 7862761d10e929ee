// Package restfront serves Connect unary methods at their google.api.http
// routes.
//
// A route turns a REST request into the method's request message (JSON body,
// path variables, query parameters), hands it to the Connect handler as a Connect
// unary call, and passes the answer on: the same JSON for a result, the error body
// of package apierr with its status for a failure. So there is one implementation
// of each method, with one set of interceptors.
//
// It refuses what it does not understand (unknown fields and parameters, a body
// where none belongs, a body over [MaxBodyBytes], another media type) and holds
// one request and one answer in memory. It serves unary methods only; rows go over
// routes of their own. Why this is not a general transcoder stands in
// docs/decisions.
package restfront

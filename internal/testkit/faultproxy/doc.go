// Package faultproxy stands between an HTTP client and a server in tests and
// breaks what passes through, by rule: delays, answers of its own, answers lost
// after the server did the work, connections reset before it saw the request,
// bodies cut short.
//
// It owns its listener and its connections, and nothing of the server behind.
// The Host header passes unchanged, so that a signed S3 request stays valid. It
// refuses nothing and checks nothing; it is for tests only.
//
// Rules are tried in the order they were added, and the first that fires decides
// (delays excepted: they add up). Each rule draws from its own seeded source, so
// that one client at a time sees the same faults for the same seed.
package faultproxy

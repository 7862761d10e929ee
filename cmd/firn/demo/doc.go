// Package demo is the guided tour behind "firn demo": one agent on an embedded
// store, real flights streamed in at visible speed, followed live, queried,
// folded, and counted in all three places where they can be read; then a
// primary-key table that they keep, with lookups, its changes and a delete.
//
// The data are 20,000 domestic flights of 2001 from the on-time database of the
// US Bureau of Transportation Statistics, which is in the public domain, as the
// vega-datasets package (BSD-3-Clause) selects them.
package demo

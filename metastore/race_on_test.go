//go:build race

package metastore

// The simulation has one thread, in which the race detector finds nothing; it
// makes it ten times slower.
const simSeedsByDefault = 50

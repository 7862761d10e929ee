//go:build !race

package metastore

const simSeedsByDefault = 200

// Package bench measures Firn beside its ceilings: for each figure, a program that
// does only what cannot be left out runs on the same rows, in the same run.
//
// It owns the cases of `firn loadtest bench` ([Run]) and the table in
// docs/benchmarks.md that they print. Agents run inside the process on stores in
// memory, so that a figure tells of Firn and not of a disk or a network; where a
// put's own time matters, the store adds it.
//
// A figure is the median of its repeats. Ratios are taken within a repeat, so that
// a busy machine slows both sides alike.
package bench

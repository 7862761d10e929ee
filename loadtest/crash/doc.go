// Package crash kills agents and looks for what was lost.
//
// Its tests start the firn binary as a process of its own, on files and on a real
// S3 server, write to it in every way that promises exactly-once, kill it with
// SIGKILL at random moments, start it again, and compare what can be read with
// what was acknowledged: nothing lost, nothing twice, offsets dense, and every row
// for ever at the offset where it was first seen.
//
// It owns no code that others import. The environment says how hard it tries:
//
//	FIRN_BIN            a built binary, instead of building one
//	FIRN_CRASH_ROUNDS   kills of a test; default 40 on files, 10 on S3
//	FIRN_CRASH_SEED     seed of all choices; the default is new each time and printed
//	FIRN_CRASH_DIR      keep stores and logs there, instead of a temporary folder
//	FIRN_FLIGHTS        path of flights-3m.parquet, for the test of three million rows
package crash

// Package fsck walks a whole store and compares what the durable state needs with
// what is there. It only reads, and it runs beside agents.
//
// What is needed is worked out from the same sources as a recovery: the metadata
// state; for each slot the newest checkpoint of its owner, or the one that the
// state names; the owner's WAL from the position that this checkpoint covers; and
// each table's Iceberg metadata. It shares no code with the collector, so that
// a fault in the collector's reasoning shows here.
//
// Findings:
//
//   - missing: needed, and not in the store. Rows or history are lost.
//   - corrupt: in the store, and its checksum, its format or its place in the log
//     is wrong.
//   - garbage: in the store, and needed by nothing. Young garbage is normal (the
//     collector waits until an upload can no longer be in progress); at rest it
//     goes to zero.
//
// Because agents write meanwhile, an object that seems to be missing is looked for
// once more under fresh references before it is reported.
//
// Memory grows with the number of live objects; WAL objects are read one at a time.
package fsck

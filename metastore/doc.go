// Package metastore owns the cluster's metadata: databases, tables with their
// schemas and properties, agents, and who owns which slot.
//
// All of it is one deterministic state machine ([State], [Apply]) over a log of
// small JSON entries under meta/log/, each put-if-absent at the next sequence
// number. There is no other coordinator: whoever creates entry n wins position
// n, and everybody else reads it, applies it and decides again. Snapshots under
// meta/snapshot/ bound what an opening agent has to read.
//
// # Main types
//
//   - [State] is an immutable view: one prefix of the log, applied. Any number of
//     goroutines may read it; a change makes a new State that shares what did
//     not change, so that applying an entry costs the same with 10,000 tables
//     as with one.
//   - [Log] follows and extends the log in a store: [Log.State] is the newest
//     view it has, [Log.Append] decides on the newest state and writes,
//     [Log.Refresh] is certain to see all entries written before the call.
//   - [Command] is what an entry does. The Decide… functions build commands from
//     a state, with every rule checked, for use with Append.
//   - [TableSpec] is a definition as a user writes it; [NewTable] turns it into a
//     [Table] or refuses it, naming column and rule; [Table.Alter] does the same
//     for a list of [Change] values. [Properties] lists what a table may set.
//   - [Heartbeat] writes agents/<incarnation> and knows whether this agent may
//     serve latest-value reads; [Observer] reads the others' and reports who fell
//     silent. The Plan… functions turn a state into the steps of start, takeover,
//     hand-over and leave.
//
// # What it refuses
//
// It knows nothing of WAL objects, checkpoints' contents, or Iceberg: it records
// references to them. It is not on the write path of rows.
//
// # Invariants
//
// They stand with tags in docs/format/metadata.md; the safety argument of
// appends against deleted log positions is docs/decisions/0003.
//
//   - INVARIANT(meta-1): every State that a Log publishes is a prefix of one log.
//   - INVARIANT(meta-2): Append reports success for at most one entry a position.
//   - INVARIANT(meta-3): a slot has at most one owner, and changes its owner only
//     when the former one released it or is fenced.
//   - INVARIANT(meta-4): table ids and field ids are never reused.
//   - INVARIANT(meta-5): log entries are deleted only when two snapshots at or
//     past them exist, and the newest two snapshots are never deleted.
//
// # Concurrency
//
// State, Table and everything reachable from them are never changed once
// published. Log is safe for concurrent use; its appends run one at a time, and
// no lock is held over store calls (turns are passed by channel). The tailing
// goroutine, the snapshot goroutine, the heartbeat and the observer are each
// owned by the value whose Close waits for them.
package metastore

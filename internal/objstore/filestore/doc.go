// Package filestore keeps a store in a folder of a local file system: the
// file:// driver.
//
// An object is one file at its key's path below the root. The package owns the
// root folder, the folder .firn-tmp inside it, and nothing else; it refuses
// file systems without hard links (put-if-absent is link(2)).
//
// # Write order
//
// PutIfAbsent: write a temporary file in .firn-tmp, fsync it, link(2) it to its
// name (fails when the name is taken), fsync the folder, unlink the temporary.
// Put: the same with rename(2). A folder made on the way is durable in its
// parent before the first object in it. A small put costs one fsync of the file
// and one of the folder; puts into one folder at the same time share the latter.
//
//   - INVARIANT(file-1): a name, once visible, has its whole durable content.
//   - INVARIANT(file-2): Created and Exists are answered only after an fsync of
//     the folder that began after the name stood there.
//   - INVARIANT(file-3): folders are never removed, so that a name's path cannot
//     vanish between making it durable and using it.
//
// Deletes are not synced: after a power failure a deleted object may stand
// there again, as if the delete had come later.
//
// # Concurrency
//
// Any number of processes may share one root; the kernel arbitrates names.
// Within a process, folder.syncMu is held over the fsync that it shares out.
package filestore

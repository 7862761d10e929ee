package objstore

import "strings"

// Op names one method of Store.
type Op uint8

// The operations, in the order of the interface.
const (
	OpGet Op = iota
	OpGetRange
	OpHead
	OpPut
	OpPutIfAbsent
	OpList
	OpDelete
	numOps
)

var opNames = [numOps]string{"get", "get_range", "head", "put", "put_if_absent", "list", "delete"}

// String returns the operation's name as metrics show it.
func (o Op) String() string {
	if o < numOps {
		return opNames[o]
	}
	return "op"
}

// Writes reports whether the operation can change the store.
func (o Op) Writes() bool { return o == OpPut || o == OpPutIfAbsent || o == OpDelete }

// Ops returns all operations.
func Ops() []Op {
	all := make([]Op, 0, numOps)
	for o := range numOps {
		all = append(all, o)
	}
	return all
}

// KeyClass sorts a key (or a list prefix) into the few classes that a ledger
// counts by: its first path element, and for the lake whether it is metadata or
// data ("lake/metadata", "lake/data"; "lake" when the key does not say).
func KeyClass(key string) string {
	first, rest, _ := strings.Cut(key, "/")
	if first != "lake" {
		return first
	}
	for range 2 { // database, table
		_, rest, _ = strings.Cut(rest, "/")
	}
	switch kind, _, _ := strings.Cut(rest, "/"); kind {
	case "metadata", "data":
		return "lake/" + kind
	}
	return "lake"
}

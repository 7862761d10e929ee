package index

import "fmt"

// Location is the position of a row in the lake: a data file by its number in the
// bucket's manifest, and the row's position in it from 0.
type Location uint64

// Nowhere is the location of a key that has no row in the lake.
const Nowhere Location = 1<<64 - 1

// MaxFile and MaxRow are the largest parts of a location.
const (
	MaxFile = 1<<32 - 2
	MaxRow  = 1<<32 - 1
)

// At returns the location of a row in a data file.
func At(file, row uint32) Location { return Location(uint64(file)<<32 | uint64(row)) }

// File returns the number of the data file.
func (l Location) File() uint32 { return uint32(l >> 32) } //nolint:gosec // the upper half

// Row returns the row's position in the data file.
func (l Location) Row() uint32 { return uint32(l) } //nolint:gosec // the lower half

// String returns "file:row", or "nowhere".
func (l Location) String() string {
	if l == Nowhere {
		return "nowhere"
	}
	return fmt.Sprintf("%d:%d", l.File(), l.Row())
}

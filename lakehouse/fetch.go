package lakehouse

// RowRef is a row of a data file.
type RowRef struct {
	Key string // of the data file in the store
	Row uint32 // position in the file
}

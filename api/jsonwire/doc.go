// Package jsonwire is the JSON form of Firn's protobuf messages, for Connect
// and for the REST routes.
//
// It is protojson with three differences, all in what it writes: fields have
// their proto names (snake_case), 64-bit integers are JSON numbers, and output
// is deterministic (fields in the order of their declaration, map keys sorted).
// Fields without presence are always written, also when they are zero or empty;
// fields with presence are written when they are set.
//
// It reads what protojson reads: proto and lowerCamelCase names, integers as
// numbers or strings. A number inside a google.protobuf.Value that float64
// cannot hold exactly is read as a string of the same digits, so that the
// default of a long or decimal column is never rounded. Unknown fields are
// errors: a misspelt property must not be lost in silence.
//
// [Codec] plugs it into connect-go:
//
//	firnv1connect.NewCatalogServiceHandler(impl, connect.WithCodec(jsonwire.Codec{}))
//
// All functions are pure and safe for concurrent use.
package jsonwire

// Package api is the root of Firn's public definitions.
//
//   - firn/v1 holds the protobuf files and their generated Go code; the Connect
//     clients and handlers are in firn/v1/firnv1connect.
//   - jsonwire is the JSON form of those messages: proto names, 64-bit integers
//     as numbers.
//   - google/api declares the google.api.http option, so that generation needs
//     no network.
//
// The package itself holds nothing. `make generate` rebuilds the generated code;
// `make lint` fails when it is stale.
package api

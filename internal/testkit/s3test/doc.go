// Package s3test runs a real S3-compatible server for tests: versitygw on a
// temporary folder and a free local port.
//
// It owns the server's process, folder and binary. The binary is built once from
// the module internal/tools/s3server, which pins its version, into a cache
// folder (the user's cache folder/firn-tools, or $FIRN_TOOLS_DIR) under a name
// that changes with the pin. The first build takes some minutes; FIRN_S3=off
// skips every test that needs the server and says so.
//
// A Server can be stopped, killed and started again on the same port and folder.
package s3test

// Command firn is Firn's one binary: the agent ("serve"), the guided tour
// ("demo"), and the commands that talk to an agent or look into a store.
//
// Each command has a file of its own. Results go to stdout, everything else to
// stderr; --json makes results one JSON document a command (or one line a row),
// otherwise they are tables for people. Exit codes stand in the help and in
// [exitCode].
package main

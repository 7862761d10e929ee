package main

import (
	"io"
	"os"
	"strings"

	"github.com/firn-data/firn/segments/rows"
)

// input is one file of an append, not yet opened.
type input struct {
	name        string // "-" is stdin
	format      rows.Format
	compression string
	size        int64 // -1 when it is not known
	stdin       io.Reader
}

// inputs checks all files before the first row is sent.
func (a *app) inputs(files []string, format string) ([]*input, error) {
	var out []*input
	for _, name := range files {
		in := &input{name: name, size: -1, stdin: a.in}
		var ok bool
		switch {
		case format != "":
			in.format, in.compression, ok = rows.FormatFromExt("x." + strings.TrimPrefix(format, "."))
			if !ok {
				return nil, usagef("format %q is none of ndjson, json, csv, arrow, parquet, each also with .gz or .zst", format)
			}
		case name == "-":
			in.format = rows.NDJSON
		default:
			if in.format, in.compression, ok = rows.FormatFromExt(name); !ok {
				return nil, usagef("the format of %s is not known by its extension; give --format", name)
			}
		}
		if name != "-" {
			info, err := os.Stat(name)
			if err != nil {
				return nil, usagef("%v", err)
			}
			if info.IsDir() {
				return nil, usagef("%s is a folder", name)
			}
			if info.Mode().IsRegular() {
				in.size = info.Size()
			}
		}
		out = append(out, in)
	}
	return out, nil
}

func (in *input) open() (io.ReadCloser, error) {
	if in.name == "-" {
		return io.NopCloser(in.stdin), nil
	}
	f, err := os.Open(in.name)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return f, nil
}

// seekable reports whether a Parquet file can be read group by group; others are
// read whole.
func (in *input) seekable() bool {
	return in.format == rows.Parquet && in.compression == "" && in.size >= 0
}

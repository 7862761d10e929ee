package rows

import (
	"mime"
	"path"
	"strings"
)

// Format is a row format.
type Format uint8

// The formats.
const (
	NDJSON Format = iota
	JSON
	CSV
	ArrowStream // also reads the IPC file format
	Parquet
)

var formatNames = [...]string{"ndjson", "json", "csv", "arrow", "parquet"}

var contentTypes = [...]string{
	"application/x-ndjson", "application/json", "text/csv",
	"application/vnd.apache.arrow.stream", "application/vnd.apache.parquet",
}

// String returns the format's short name.
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return "unknown"
}

// ContentType returns the media type that the format is served with.
func (f Format) ContentType() string {
	if int(f) < len(contentTypes) {
		return contentTypes[f]
	}
	return "application/octet-stream"
}

// ContentTypes lists the media types that are served, for 415 and 406 answers.
func ContentTypes() []string { return append([]string(nil), contentTypes[:]...) }

// ParseFormat returns the format with that short name.
func ParseFormat(name string) (Format, bool) {
	for i, n := range formatNames {
		if strings.EqualFold(n, name) {
			return Format(i), true
		}
	}
	return 0, false
}

// FormatFromContentType returns the format of a media type, whose parameters
// are ignored but for a charset other than UTF-8, which is refused. An empty
// one is NDJSON.
func FormatFromContentType(contentType string) (Format, bool) {
	if strings.TrimSpace(contentType) == "" {
		return NDJSON, true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return 0, false
	}
	if cs := strings.ToLower(params["charset"]); cs != "" && cs != "utf-8" && cs != "utf8" && cs != "us-ascii" {
		return 0, false
	}
	switch media {
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines":
		return NDJSON, true
	case "application/json", "text/json":
		return JSON, true
	case "text/csv", "application/csv":
		return CSV, !strings.EqualFold(params["header"], "absent") // RFC 4180's parameter: columns are named by the header
	case "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file":
		return ArrowStream, true
	case "application/vnd.apache.parquet", "application/x-parquet", "application/parquet":
		return Parquet, true
	}
	return 0, false
}

// FormatFromExt returns format and compression ("", "gzip", "zstd") of a file
// by its name's extensions ("rows.csv.gz").
func FormatFromExt(name string) (f Format, compression string, ok bool) {
	name = strings.ToLower(name)
	switch path.Ext(name) {
	case ".gz", ".gzip":
		compression = "gzip"
	case ".zst", ".zstd":
		compression = "zstd"
	}
	if compression != "" {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	switch path.Ext(name) {
	case ".ndjson", ".jsonl":
		f = NDJSON
	case ".json":
		f = JSON
	case ".csv":
		f = CSV
	case ".arrow", ".arrows", ".ipc", ".feather":
		f = ArrowStream
	case ".parquet", ".pq":
		f = Parquet
	default:
		return 0, "", false
	}
	return f, compression, true
}

package objstore

import (
	"strings"
	"unicode/utf8"

	"github.com/firn-data/firn/internal/errs"
)

// Bounds of a key. S3 allows 1,024 bytes for prefix and key together; file
// systems allow 255 bytes an element.
const (
	MaxKeyBytes     = 900
	MaxElementBytes = 255
)

// ReservedPrefix starts the names that drivers keep for themselves at the
// store's root (temporary files of file://). No key may start with it.
const ReservedPrefix = ".firn-"

// CheckKey returns an Invalid error unless every driver can hold key: valid
// UTF-8 without control characters or backslashes, at most MaxKeyBytes, made of
// non-empty elements of at most MaxElementBytes other than "." and "..". A key
// must also not be an element-wise prefix of another key ("a" beside "a/b"):
// file systems cannot hold both, and no driver is asked to check it.
func CheckKey(key string) error {
	switch {
	case key == "":
		return errs.New(errs.Invalid, "object key is empty")
	case len(key) > MaxKeyBytes:
		return errs.New(errs.Invalid, "object key of %d bytes is longer than %d", len(key), MaxKeyBytes)
	case strings.HasPrefix(key, ReservedPrefix):
		return errs.New(errs.Invalid, "object key %q starts with the reserved %q", key, ReservedPrefix)
	}
	if why := badText(key); why != "" {
		return errs.New(errs.Invalid, "object key %q %s", key, why)
	}
	for rest := key; ; {
		element, tail, more := strings.Cut(rest, "/")
		if why := badElement(element); why != "" {
			return errs.New(errs.Invalid, "object key %q has an element that is %s", key, why)
		}
		if !more {
			return nil
		}
		rest = tail
	}
}

// CheckPrefix returns an Invalid error unless prefix can start a key. The empty
// prefix and one that ends in a slash are fine.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if len(prefix) > MaxKeyBytes || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//") {
		return errs.New(errs.Invalid, "list prefix %q cannot start a key", prefix)
	}
	if why := badText(prefix); why != "" {
		return errs.New(errs.Invalid, "list prefix %q %s", prefix, why)
	}
	complete := prefix[:strings.LastIndexByte(prefix, '/')+1] // the last element may still grow
	for element := range strings.SplitSeq(complete, "/") {
		if element == "." || element == ".." {
			return errs.New(errs.Invalid, "list prefix %q cannot start a key", prefix)
		}
	}
	return nil
}

func badText(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == 0x7f || c == '\\' {
			return "holds a control character or a backslash"
		}
	}
	return ""
}

func badElement(e string) string {
	switch {
	case e == "":
		return "empty"
	case e == "." || e == "..":
		return `"." or ".."`
	case len(e) > MaxElementBytes:
		return "longer than 255 bytes"
	}
	return ""
}

// Window turns the start and n of a GetRange into the half-open byte range
// [from, to) of an object of the given size; it is empty when nothing overlaps.
func Window(size, start, n int64) (from, to int64) {
	switch {
	case n <= 0:
		return 0, 0
	case start < 0:
		return max(0, size-n), size
	case start >= size:
		return size, size
	}
	return start, start + min(n, size-start)
}

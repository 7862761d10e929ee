package metastore

import (
	"maps"
	"slices"
	"strings"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// unknownColumn makes the error for a column that a schema does not have.
func unknownColumn(name string, s *segments.Schema) *errs.Error {
	if near := nearest(name, s.Names()); near != "" {
		return errs.New(errs.Invalid, "unknown column %q; did you mean %q?", name, near)
	}
	return errs.New(errs.Invalid, "unknown column %q; the table has %s", name, strings.Join(s.Names(), ", "))
}

func versionKind(k segments.Kind) bool {
	switch k {
	case segments.Int, segments.Long, segments.Date, segments.Time, segments.Timestamp, segments.TimestampTZ:
		return true
	}
	return false
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nearest returns the candidate that a typing error could have meant, or "":
// at most a third of the letters may differ.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", len(name)/3+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes; names are short.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func splitPath(path string) []string { return strings.Split(path, ".") }

func lastElement(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// fieldIDs returns the ids of a field and of all its children.
func fieldIDs(f segments.Field) []int32 {
	ids := []int32{f.ID}
	for _, c := range f.Type.Children {
		ids = append(ids, fieldIDs(c)...)
	}
	return ids
}

package rows

import "github.com/firn-data/firn/internal/errs"

// limitError is the error of a body that is larger than one of its limits, which
// the message names and the details hold.
func limitError(limit int64, format string, args ...any) error {
	e := errs.New(errs.TooLarge, format, args...)
	e.Details = []any{map[string]any{"limit": limit}}
	return e
}

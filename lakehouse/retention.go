package lakehouse

import (
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// Retention returns the age after which rows may be dropped; 0 keeps them for ever.
func (d *TableDef) Retention() (time.Duration, error) {
	text := d.Properties[PropRetention]
	if text == "" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return age, nil
	}
	return 0, errs.New(errs.Invalid, "property %s is %q: must be a positive duration such as 12h or 7d", PropRetention, text)
}

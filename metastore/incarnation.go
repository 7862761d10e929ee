package metastore

import (
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// incarnationLayout gives ids that sort by time and a person can read.
const incarnationLayout = "20060102T150405.000"

var incarnationPattern = regexp.MustCompile(`^[0-9]{8}T[0-9]{9}Z-[0-9a-f]{12}$`)

// NewIncarnation mints an id for one run of an agent: the time in milliseconds,
// and 48 random bits, as in 20261130T101530123Z-9f3c21aa04de. Ids sort by time,
// fit into object keys, and are never reused.
func NewIncarnation(now time.Time, random io.Reader) (string, error) {
	var r [6]byte
	if _, err := io.ReadFull(random, r[:]); err != nil {
		return "", errs.Wrap(errs.Internal, "read random bytes", err)
	}
	t := now.UTC().Format(incarnationLayout)
	return fmt.Sprintf("%s%sZ-%s", t[:15], t[16:], hex.EncodeToString(r[:])), nil
}

// CheckIncarnation refuses what NewIncarnation cannot have minted.
func CheckIncarnation(id string) error {
	if !incarnationPattern.MatchString(id) {
		return errs.New(errs.Invalid, "incarnation %q: not an id that Firn mints", id)
	}
	return nil
}

// newNonce returns 96 random bits as text.
func newNonce(random io.Reader) (string, error) {
	var r [12]byte
	if _, err := io.ReadFull(random, r[:]); err != nil {
		return "", errs.Wrap(errs.Internal, "read random bytes", err)
	}
	return hex.EncodeToString(r[:]), nil
}

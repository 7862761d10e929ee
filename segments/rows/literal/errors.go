package literal

// reason is a constant error: parsing values must not allocate for a bad row.
type reason string

// Error returns the reason.
func (r reason) Error() string { return string(r) }

// The reasons why a text is not a value.
const (
	ErrDate          = reason("not a date of the form YYYY-MM-DD")
	ErrDateRange     = reason("not a day of the calendar")
	ErrTime          = reason("not a time of the form HH:MM:SS[.ffffff]")
	ErrTimeRange     = reason("not a time of day")
	ErrNanos         = reason("more than six fraction digits: values are kept in microseconds, and digits beyond them would be lost")
	ErrTimestamp     = reason("not a timestamp of the form YYYY-MM-DDTHH:MM:SS[.ffffff]")
	ErrTimestampTZ   = reason("not an RFC 3339 timestamp of the form YYYY-MM-DDTHH:MM:SS[.ffffff]Z or with an offset such as +02:00")
	ErrZoneMissing   = reason("a timestamptz needs a zone: Z or an offset such as +02:00")
	ErrZoneUnwanted  = reason("a timestamp has no zone: leave out Z or the offset, or make the column timestamptz")
	ErrZone          = reason("not a zone offset of the form Z or +HH:MM")
	ErrTooFar        = reason("outside the range of a 64-bit microsecond timestamp")
	ErrUUID          = reason("not a uuid of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
	ErrNumber        = reason("not a number")
	ErrFraction      = reason("more fraction digits than the scale of the column: the value would be rounded")
	ErrPrecision     = reason("more digits than the precision of the column")
	ErrExponentRange = reason("exponent out of range")
)

package rows

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments/rows/literal"
)

// quoted consumes a string that a column's values are written as.
func (s *scanner) quoted(want string) ([]byte, bool) {
	if s.peek() != '"' {
		return nil, s.mismatch(want)
	}
	return s.str()
}

type dateColumn struct{ values[arrow.Date32] }

func (c *dateColumn) size() int { return 4 * len(c.vals) }
func (c *dateColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.FixedWidthTypes.Date32, arrow.GetBytes)
}

func (c *dateColumn) json(s *scanner) bool {
	b, ok := s.quoted("a date as a string")
	if !ok {
		return false
	}
	if err := c.text(b); err != nil {
		return s.fail(err)
	}
	return true
}

func (c *dateColumn) text(b []byte) error {
	v, err := literal.Date(b)
	if err == nil {
		c.append(arrow.Date32(v))
	}
	return err
}

type timeColumn struct{ values[arrow.Time64] }

func (c *timeColumn) size() int { return 8 * len(c.vals) }
func (c *timeColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.FixedWidthTypes.Time64us, arrow.GetBytes)
}

func (c *timeColumn) json(s *scanner) bool {
	b, ok := s.quoted("a time as a string")
	if !ok {
		return false
	}
	if err := c.text(b); err != nil {
		return s.fail(err)
	}
	return true
}

func (c *timeColumn) text(b []byte) error {
	v, err := literal.Time(b)
	if err == nil {
		c.append(arrow.Time64(v))
	}
	return err
}

// timestampColumn takes texts, or integers that are epoch microseconds.
type timestampColumn struct {
	values[arrow.Timestamp]
	dt   arrow.DataType
	zone bool
}

func (c *timestampColumn) size() int             { return 8 * len(c.vals) }
func (c *timestampColumn) take() arrow.ArrayData { return takeValues(&c.values, c.dt, arrow.GetBytes) }

func (c *timestampColumn) json(s *scanner) bool {
	switch ch := s.peek(); {
	case ch == '"':
		b, ok := s.str()
		if !ok {
			return false
		}
		v, err := literal.Timestamp(b, c.zone)
		if err != nil {
			return s.fail(err)
		}
		c.append(arrow.Timestamp(v))
		return true
	case ch == '-' || ch-'0' <= 9:
		v, ok := s.integer()
		if ok {
			c.append(arrow.Timestamp(v))
		}
		return ok
	}
	return s.mismatch("a timestamp as a string, or integer epoch microseconds")
}

func (c *timestampColumn) text(b []byte) error {
	v, err := literal.Timestamp(b, c.zone)
	if err != nil && allDigits(b) {
		v, err = integerText(b)
	}
	if err == nil {
		c.append(arrow.Timestamp(v))
	}
	return err
}

// allDigits reports whether b is an optional minus sign and digits.
func allDigits(b []byte) bool {
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	return len(b) > 0 && digits(b, 0) == len(b)
}

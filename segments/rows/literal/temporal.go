package literal

import "math"

// Date parses a date into days since 1970-01-01.
func Date(b []byte) (int32, error) {
	days, n, err := datePrefix(b)
	if err != nil {
		return 0, err
	}
	if n != len(b) {
		return 0, ErrDate
	}
	if days < math.MinInt32 || days > math.MaxInt32 {
		return 0, ErrDateRange
	}
	return int32(days), nil
}

// datePrefix parses the date that b starts with and returns its length.
func datePrefix(b []byte) (days int64, n int, err error) {
	if len(b) < 10 {
		return 0, 0, ErrDate
	}
	if b[0] == '+' || b[0] == '-' {
		return signedDate(b)
	}
	hi, lo, m, d := two(b, 0), two(b, 2), two(b, 5), two(b, 8)
	if b[4] != '-' || b[7] != '-' || hi > 99 || lo > 99 || m > 99 || d > 99 {
		return 0, 0, ErrDate
	}
	y := int64(hi*100 + lo)
	if !validDay(y, m, d) {
		return 0, 0, ErrDateRange
	}
	return daysFromCivil(y, m, d), 10, nil
}

// signedDate parses a date with a sign and a year of four to seven digits.
func signedDate(b []byte) (days int64, n int, err error) {
	const maxYearDigits = 7 // enough for every 32-bit day number
	y, i := int64(0), 1
	for i < len(b) && i <= maxYearDigits && b[i]-'0' <= 9 {
		y = y*10 + int64(b[i]-'0')
		i++
	}
	if i < 5 || len(b) < i+6 || b[i] != '-' || b[i+3] != '-' {
		return 0, 0, ErrDate
	}
	if b[0] == '-' {
		y = -y
	}
	m, d := two(b, i+1), two(b, i+4)
	if m > 99 || d > 99 {
		return 0, 0, ErrDate
	}
	if !validDay(y, m, d) {
		return 0, 0, ErrDateRange
	}
	return daysFromCivil(y, m, d), i + 6, nil
}

// Time parses a time of day into microseconds since midnight.
func Time(b []byte) (int64, error) {
	us, n, err := timePrefix(b)
	if err != nil {
		return 0, err
	}
	if n != len(b) {
		return 0, ErrTime
	}
	return us, nil
}

// timePrefix parses the time of day that b starts with and returns its length.
func timePrefix(b []byte) (us int64, n int, err error) {
	if len(b) < 8 || b[2] != ':' || b[5] != ':' {
		return 0, 0, ErrTime
	}
	h, m, s := two(b, 0), two(b, 3), two(b, 6)
	if h > 99 || m > 99 || s > 99 {
		return 0, 0, ErrTime
	}
	if h > 23 || m > 59 || s > 59 {
		return 0, 0, ErrTimeRange
	}
	us = int64(h)*microsPerHour + int64(m)*microsPerMinute + int64(s)*microsPerSecond
	if len(b) == 8 || b[8] != '.' {
		return us, 8, nil
	}
	frac, scale, i := int64(0), int64(microsPerSecond), 9
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		if i-9 >= 9 {
			return 0, 0, ErrNanos
		}
		if scale > 1 {
			scale /= 10
			frac += int64(b[i]-'0') * scale
		} else if b[i] != '0' {
			return 0, 0, ErrNanos
		}
	}
	if i == 9 {
		return 0, 0, ErrTime
	}
	return us + frac, i, nil
}

// Timestamp parses a timestamp into microseconds since 1970-01-01T00:00:00.
// With zone set the text must carry one and the result is UTC; without, it
// must carry none.
func Timestamp(b []byte, zone bool) (int64, error) {
	bad := error(ErrTimestamp)
	if zone {
		bad = ErrTimestampTZ
	}
	days, n, err := datePrefix(b)
	if err == ErrDate || err == nil && (n >= len(b) || b[n] != 'T' && b[n] != ' ' && b[n] != 't') {
		return 0, bad
	}
	if err != nil {
		return 0, err
	}
	rest := b[n+1:]
	us, n, err := timePrefix(rest)
	if err == ErrTime {
		return 0, bad
	}
	if err != nil {
		return 0, err
	}
	offset, err := zoneOffset(rest[n:], zone)
	if err != nil {
		return 0, err
	}
	const maxDays = math.MaxInt64/microsPerDay - 1
	if days < -maxDays || days > maxDays {
		return 0, ErrTooFar
	}
	return days*microsPerDay + us - offset, nil
}

// zoneOffset parses what follows the time into microseconds east of UTC.
func zoneOffset(b []byte, zone bool) (int64, error) {
	switch {
	case len(b) == 0 && !zone:
		return 0, nil
	case len(b) == 0:
		return 0, ErrZoneMissing
	case len(b) == 1 && (b[0] == 'Z' || b[0] == 'z'):
		if !zone {
			return 0, ErrZoneUnwanted
		}
		return 0, nil
	case len(b) != 6 || b[0] != '+' && b[0] != '-' || b[3] != ':':
		if zone {
			return 0, ErrZone
		}
		return 0, ErrTimestamp
	}
	h, m := two(b, 1), two(b, 4)
	if h > 23 || m > 59 {
		return 0, ErrZone
	}
	if !zone {
		return 0, ErrZoneUnwanted
	}
	offset := int64(h)*microsPerHour + int64(m)*microsPerMinute
	if b[0] == '-' {
		return -offset, nil
	}
	return offset, nil
}

// AppendDate appends the date that is days after 1970-01-01.
func AppendDate(dst []byte, days int32) []byte { return appendDay(dst, int64(days)) }

func appendDay(dst []byte, days int64) []byte {
	y, m, d := civilFromDays(days)
	switch {
	case y > 9999:
		dst = append(dst, '+')
		dst = appendWide(dst, y)
	case y < 0:
		dst = append(dst, '-')
		dst = appendWide(dst, -y)
	default:
		dst = appendTwo(appendTwo(dst, int(y/100)), int(y%100))
	}
	dst = appendTwo(append(dst, '-'), m)
	return appendTwo(append(dst, '-'), d)
}

// appendWide appends a year with at least four digits.
func appendWide(dst []byte, y int64) []byte {
	var tmp [20]byte
	i := len(tmp)
	for y > 0 || len(tmp)-i < 4 {
		i--
		tmp[i] = byte('0' + y%10)
		y /= 10
	}
	return append(dst, tmp[i:]...)
}

func appendTwo(dst []byte, v int) []byte { return append(dst, byte('0'+v/10), byte('0'+v%10)) }

// AppendTime appends the time of day us microseconds after midnight. The
// fraction is left out when it is zero, else it has six digits.
func AppendTime(dst []byte, us int64) []byte {
	s := us / microsPerSecond
	frac := us % microsPerSecond
	dst = appendTwo(dst, int(s/3600))
	dst = appendTwo(append(dst, ':'), int(s/60%60))
	dst = appendTwo(append(dst, ':'), int(s%60))
	if frac == 0 {
		return dst
	}
	dst = appendTwo(append(dst, '.'), int(frac/10000))
	return appendTwo(appendTwo(dst, int(frac/100%100)), int(frac%100))
}

// AppendTimestamp appends the timestamp us microseconds after
// 1970-01-01T00:00:00, followed by Z when zone is set. The fraction is left
// out when it is zero, else it has six digits.
func AppendTimestamp(dst []byte, us int64, zone bool) []byte {
	days := floorDiv(us, microsPerDay)
	dst = append(appendDay(dst, days), 'T')
	dst = AppendTime(dst, us-days*microsPerDay)
	if zone {
		dst = append(dst, 'Z')
	}
	return dst
}

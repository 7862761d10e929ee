package literal

// Microseconds in the units of a day.
const (
	microsPerSecond = 1_000_000
	microsPerMinute = 60 * microsPerSecond
	microsPerHour   = 60 * microsPerMinute
	microsPerDay    = 24 * microsPerHour
)

// daysFromCivil returns the days since 1970-01-01 of a day in the proleptic
// Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
func daysFromCivil(y int64, m, d int) int64 {
	if m <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	yoe := y - era*400
	mp := int64((m + 9) % 12)
	doy := (153*mp+2)/5 + int64(d) - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

// civilFromDays is the inverse of daysFromCivil.
func civilFromDays(days int64) (y int64, m, d int) {
	days += 719468
	era := floorDiv(days, 146097)
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = int(doy - (153*mp+2)/5 + 1)
	m = int(mp + 3)
	if m > 12 {
		m -= 12
	}
	y = yoe + era*400
	if m <= 2 {
		y++
	}
	return y, m, d
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

var monthDays = [13]uint8{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

func validDay(y int64, m, d int) bool {
	if m < 1 || m > 12 || d < 1 {
		return false
	}
	if d <= int(monthDays[m]) {
		return true
	}
	return m == 2 && d == 29 && y%4 == 0 && (y%100 != 0 || y%400 == 0)
}

// two returns the number that two digits at b[i] denote, or a value above 99.
func two(b []byte, i int) int {
	hi, lo := uint(b[i])-'0', uint(b[i+1])-'0'
	if hi > 9 || lo > 9 {
		return 1000
	}
	return int(hi*10 + lo)
}

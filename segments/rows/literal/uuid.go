package literal

// unhex maps hexadecimal digits to their value; 0xff is "not one".
var unhex = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range byte(10) {
		t['0'+i] = i
	}
	for i := range byte(6) {
		t['a'+i], t['A'+i] = 10+i, 10+i
	}
	return t
}()

// uuidDigits are the positions of a uuid's byte pairs in its text.
var uuidDigits = [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// UUID parses a uuid in its canonical form, of either case.
func UUID(b []byte) (u [16]byte, err error) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, ErrUUID
	}
	for i, at := range uuidDigits {
		hi, lo := unhex[b[at]], unhex[b[at+1]]
		if hi|lo > 15 {
			return u, ErrUUID
		}
		u[i] = hi<<4 | lo
	}
	return u, nil
}

// AppendUUID appends a uuid's canonical form; u has 16 bytes.
func AppendUUID(dst, u []byte) []byte {
	const digits = "0123456789abcdef"
	for i, c := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

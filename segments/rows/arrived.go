package rows

import (
	"bytes"
	"io"
	"unsafe"
)

// arrived is a body that is in memory.
type arrived struct{ rest []byte }

// wordBytes is the alignment that Arrow's numbers are read at.
const wordBytes = 8

func (m *arrived) aligned() bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(m.rest)))%wordBytes == 0
}

// next returns the next n bytes without a copy.
func (m *arrived) next(n int64) ([]byte, error) {
	if n > int64(len(m.rest)) {
		return nil, io.ErrUnexpectedEOF
	}
	b := m.rest[:n:n]
	m.rest = m.rest[n:]
	return b, nil
}

// Read implements io.Reader.
func (m *arrived) Read(p []byte) (int, error) {
	if len(m.rest) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// Peek returns the next n bytes, fewer with io.EOF.
func (m *arrived) Peek(n int) ([]byte, error) {
	if n > len(m.rest) {
		return m.rest, io.EOF
	}
	return m.rest[:n], nil
}

// Discard leaves n bytes out, fewer with io.EOF.
func (m *arrived) Discard(n int) (int, error) {
	if n > len(m.rest) {
		n = len(m.rest)
		m.rest = nil
		return n, io.EOF
	}
	m.rest = m.rest[n:]
	return n, nil
}

// NewBodyDecoder is NewDecoder of a body in memory, which must not be changed any
// more: batches of an Arrow stream share its bytes.
func NewBodyDecoder(body []byte, o DecodeOptions) (Decoder, error) {
	if o.Format != ArrowStream || o.Compression != "" && o.Compression != "identity" {
		return NewDecoder(bytes.NewReader(body), o)
	}
	if o.MaxBytes > 0 && int64(len(body)) > o.MaxBytes {
		return nil, bodyTooLarge(o.MaxBytes)
	}
	if o.Digest != nil {
		_, _ = o.Digest.Write(body) // a hash takes everything
	}
	return newDecoder(bytes.NewReader(nil), &arrived{body}, o)
}

func bodyTooLarge(limit int64) error {
	return limitError(limit, "the body is larger than the limit of %d bytes (decompressed); send less at once, or as a stream", limit)
}

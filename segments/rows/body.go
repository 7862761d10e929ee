package rows

import (
	"context"
	"errors"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/internal/errs"
)

// maxWindow bounds the memory that a zstd frame may ask of its reader. Every
// level of the zstd command but --ultra and --long stays below it.
const maxWindow = 16 << 20

// body reads a request's bytes, decompressed and counted.
type body struct {
	r     io.Reader
	limit int64
	read  int64
	err   error
	zstd  *zstd.Decoder
	heard hash.Hash
	open  func() (io.Reader, error) // for gzip, whose constructor reads
}

func newBody(r io.Reader, o DecodeOptions) (*body, error) {
	b := &body{r: r, limit: o.MaxBytes, heard: o.Digest}
	switch o.Compression {
	case "", "identity":
	case "gzip", "x-gzip":
		b.open = func() (io.Reader, error) { return gzip.NewReader(r) }
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "open zstd", err)
		}
		b.r, b.zstd = z, z
	default:
		return nil, errs.New(errs.Unsupported, "content encoding %q is not one of gzip, zstd", o.Compression)
	}
	return b, nil
}

// Read implements io.Reader. Reading past the limit is TooLarge.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.open != nil {
		r, err := b.open()
		if err != nil {
			b.err = readError(err, true)
			return 0, b.err
		}
		b.r, b.open = r, nil
	}
	if b.limit > 0 && int64(len(p)) > b.limit-b.read+1 {
		p = p[:b.limit-b.read+1]
	}
	n, err := b.r.Read(p)
	b.read += int64(n)
	if b.heard != nil {
		_, _ = b.heard.Write(p[:n]) // a hash takes everything
	}
	if b.limit > 0 && b.read > b.limit {
		b.err = bodyTooLarge(b.limit)
		return 0, b.err
	}
	if err != nil {
		b.err = readError(err, false)
		return n, b.err
	}
	return n, nil
}

func (b *body) close() {
	if b.zstd != nil {
		b.zstd.Close()
	}
}

// readError classifies an error of the body's reader. At the start of a
// compressed body even a plain end is one.
func readError(err error, start bool) error {
	var classified *errs.Error
	switch {
	case err == io.EOF && !start:
		return err
	case errors.As(err, &classified), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return errs.In("read body", err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return limitError(maxWindow, "the zstd window is larger than the limit of %d bytes; compress without --long", maxWindow)
	case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF:
		return errs.New(errs.Invalid, "the body ends early: it is truncated")
	}
	return errs.Wrap(errs.Invalid, "read body", err)
}

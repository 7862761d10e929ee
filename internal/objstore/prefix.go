package objstore

import (
	"context"
	"iter"
	"strings"

	"github.com/firn-data/firn/internal/errs"
)

// WithPrefix shows the part of s below prefix as a store of its own. Closing it
// closes s. An empty prefix returns s itself.
func WithPrefix(s Store, prefix string) (Store, error) {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return s, nil
	}
	if err := CheckKey(prefix); err != nil {
		return nil, errs.In("open prefix", err)
	}
	return &prefixed{inner: s, prefix: prefix + "/"}, nil
}

type prefixed struct {
	inner  Store
	prefix string // ends in a slash
}

func (p *prefixed) strip(info Info) Info {
	info.Key = strings.TrimPrefix(info.Key, p.prefix)
	return info
}

func (p *prefixed) Get(ctx context.Context, key string) ([]byte, Info, error) {
	if err := CheckKey(key); err != nil {
		return nil, Info{}, err
	}
	body, info, err := p.inner.Get(ctx, p.prefix+key)
	return body, p.strip(info), err
}

func (p *prefixed) GetRange(ctx context.Context, key string, start, n int64) ([]byte, Info, error) {
	if err := CheckKey(key); err != nil {
		return nil, Info{}, err
	}
	body, info, err := p.inner.GetRange(ctx, p.prefix+key, start, n)
	return body, p.strip(info), err
}

func (p *prefixed) Head(ctx context.Context, key string) (Info, error) {
	if err := CheckKey(key); err != nil {
		return Info{}, err
	}
	info, err := p.inner.Head(ctx, p.prefix+key)
	return p.strip(info), err
}

func (p *prefixed) Put(ctx context.Context, key string, body []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return p.inner.Put(ctx, p.prefix+key, body)
}

func (p *prefixed) PutIfAbsent(ctx context.Context, key string, body []byte) (Outcome, error) {
	if err := CheckKey(key); err != nil {
		return Unknown, err
	}
	return p.inner.PutIfAbsent(ctx, p.prefix+key, body)
}

func (p *prefixed) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	if startAfter != "" {
		startAfter = p.prefix + startAfter
	}
	return func(yield func(Info, error) bool) {
		for info, err := range p.inner.List(ctx, p.prefix+prefix, startAfter) {
			if !yield(p.strip(info), err) {
				return
			}
		}
	}
}

func (p *prefixed) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return p.inner.Delete(ctx, p.prefix+key)
}

func (p *prefixed) URL() string {
	return strings.TrimSuffix(p.inner.URL(), "/") + "/" + strings.TrimSuffix(p.prefix, "/")
}
func (p *prefixed) Close() error { return p.inner.Close() }

package objstore

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// memPage is how many objects a listing takes under the lock at a time.
const memPage = 1000

// NewMem returns an empty store in this process's memory, for tests and for
// trying things out. Nothing of it survives the process.
func NewMem() Store { return NewMemClock(time.Now) }

// NewMemClock is NewMem with the clock that stamps its objects.
func NewMemClock(now func() time.Time) Store { return newMem("mem://", now) }

// SharedMem returns the store mem://name: the same objects for the same name
// everywhere in this process, until the process ends.
func SharedMem(name string) Store {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.stores == nil {
		shared.stores = make(map[string]*mem)
	}
	m, ok := shared.stores[name]
	if !ok {
		m = newMem("mem://"+name, time.Now)
		shared.stores[name] = m
	}
	return m
}

var shared struct {
	mu     sync.Mutex
	stores map[string]*mem // by name; grows with the names that the process uses
}

type mem struct {
	url string
	now func() time.Time

	mu      sync.RWMutex
	objects map[string]memObject // bodies are never changed in place
	keys    keySet
}

type memObject struct {
	body    []byte
	modTime time.Time
}

func newMem(url string, now func() time.Time) *mem {
	return &mem{url: url, now: now, objects: make(map[string]memObject)}
}

func (m *mem) find(ctx context.Context, key string) (memObject, error) {
	if err := CheckKey(key); err != nil {
		return memObject{}, err
	}
	if err := ctx.Err(); err != nil {
		return memObject{}, errs.Wrap(errs.Canceled, "read "+key, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	o, ok := m.objects[key]
	if !ok {
		return memObject{}, errs.New(errs.NotFound, "object %s does not exist", key)
	}
	return o, nil
}

func (o memObject) info(key string) Info {
	return Info{Key: key, Size: int64(len(o.body)), ModTime: o.modTime}
}

func (m *mem) Get(ctx context.Context, key string) ([]byte, Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	return bytes.Clone(o.body), o.info(key), nil
}

func (m *mem) GetRange(ctx context.Context, key string, start, n int64) ([]byte, Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return nil, Info{}, err
	}
	from, to := Window(int64(len(o.body)), start, n)
	return bytes.Clone(o.body[from:to]), o.info(key), nil
}

func (m *mem) Head(ctx context.Context, key string) (Info, error) {
	o, err := m.find(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return o.info(key), nil
}

func (m *mem) Put(ctx context.Context, key string, body []byte) error {
	_, err := m.write(ctx, key, body, false)
	return err
}

func (m *mem) PutIfAbsent(ctx context.Context, key string, body []byte) (Outcome, error) {
	return m.write(ctx, key, body, true)
}

func (m *mem) write(ctx context.Context, key string, body []byte, ifAbsent bool) (Outcome, error) {
	if err := CheckKey(key); err != nil {
		return Unknown, err
	}
	if err := ctx.Err(); err != nil {
		return Unknown, errs.Wrap(errs.Canceled, "put "+key, err)
	}
	o := memObject{body: append([]byte{}, body...), modTime: m.now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.objects[key]; taken && ifAbsent {
		return Exists, nil
	}
	m.objects[key] = o
	m.keys.add(key)
	return Created, nil
}

func (m *mem) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return errs.Wrap(errs.Canceled, "delete "+key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	m.keys.remove(key)
	return nil
}

func (m *mem) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := CheckPrefix(prefix); err != nil {
			yield(Info{}, err)
			return
		}
		for {
			if err := ctx.Err(); err != nil {
				yield(Info{}, errs.Wrap(errs.Canceled, "list "+prefix, err))
				return
			}
			page := m.page(prefix, startAfter)
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if len(page) < memPage {
				return
			}
			startAfter = page[len(page)-1].Key
		}
	}
}

func (m *mem) page(prefix, startAfter string) []Info {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var page []Info
	m.keys.after(max(prefix, startAfter), func(key string) bool {
		if key == startAfter {
			return true
		}
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		page = append(page, m.objects[key].info(key))
		return len(page) < memPage
	})
	return page
}

func (m *mem) URL() string  { return m.url }
func (m *mem) Close() error { return nil }

package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Folder is where probes write.
const Folder = "probe/"

const cleanupLimit = 10 * time.Second

// StartupProbe returns nil when the store refuses a second conditional put. An error
// of class Unsupported means that it does not, and that nothing may be kept in
// it; any other class is the store's own (unreachable, forbidden, full).
func StartupProbe(ctx context.Context, s objstore.Store) error {
	key := Folder + "startup-" + rand.Text()
	defer remove(ctx, s, key)
	first, second := nonceBody("first"), nonceBody("second")
	c, err := objstore.Create(ctx, s, key, first, objstore.CreatePolicy{})
	if err != nil {
		return errs.In("probe store "+s.URL(), err)
	}
	if !c.Created {
		return unsupported(s, "it says that a new key with a random name is taken")
	}
	if err := secondPut(ctx, s, key, second); err != nil {
		return err
	}
	got, _, err := s.Get(ctx, key)
	switch {
	case errs.Is(err, errs.NotFound):
		return unsupported(s, "an object that was just written cannot be read")
	case err != nil:
		return errs.In("probe store "+s.URL(), err)
	case bytes.Equal(got, second):
		return unsupported(s, "it answered \"exists\" to a second conditional put and replaced the object all the same")
	case !bytes.Equal(got, first):
		return unsupported(s, "an object that was just written reads back changed")
	}
	return nil
}

// secondPut sends the put that must be refused until it has an outcome.
func secondPut(ctx context.Context, s objstore.Store, key string, body []byte) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		outcome, err := s.PutIfAbsent(ctx, key, body)
		switch outcome {
		case objstore.Exists:
			return nil
		case objstore.Created:
			return unsupported(s, "it accepted a second conditional put (If-None-Match: *) to the same key")
		case objstore.Unknown:
		}
		switch errs.ClassOf(err) {
		case errs.Unknown, errs.Unavailable, errs.Exhausted:
		case errs.Unsupported:
			return unsupported(s, "it does not know conditional puts: "+err.Error())
		default:
			return errs.In("probe store "+s.URL(), err)
		}
		select {
		case <-ctx.Done():
			return errs.In("probe store "+s.URL(), err)
		case <-time.After(pause):
		}
	}
}

func unsupported(s objstore.Store, why string) error {
	return errs.New(errs.Unsupported, "the store %s cannot hold Firn's data: %s. Acknowledged rows would be lost. "+
		"Use a store with atomic put-if-absent; firn doctor examines one", s.URL(), why)
}

func nonceBody(what string) []byte { return fmt.Appendf(nil, "firn probe %s %s\n", what, rand.Text()) }

// remove deletes what a probe wrote, also when its context has ended.
func remove(ctx context.Context, s objstore.Store, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	for _, key := range keys {
		_ = s.Delete(ctx, key)
	}
}

package agent_test

import (
	"context"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/agent/fsck"
	"github.com/firn-data/firn/internal/objstore"
)

// The check of a whole store lives above this room, so the tests inside are
// handed it.
func init() {
	agent.CheckStore = func(ctx context.Context, s objstore.Store) (agent.StoreCheck, error) {
		r, err := fsck.Check(ctx, s, fsck.Options{Deep: true})
		if err != nil {
			return agent.StoreCheck{}, err
		}
		c := agent.StoreCheck{Bytes: r.Bytes, LakeBytes: r.LakeBytes}
		for _, f := range r.Findings {
			line := string(f.Level) + " " + f.Key + ": " + f.Reason
			if f.Level == fsck.Garbage {
				c.Garbage = append(c.Garbage, f.Key)
			} else {
				c.Damage = append(c.Damage, line)
			}
		}
		return c, nil
	}
}

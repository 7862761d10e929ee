package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestTourCountsTheSameInAllThreePlaces(t *testing.T) {
	var out bytes.Buffer
	err := Run(t.Context(), Options{Store: "file://" + t.TempDir(), Listen: "127.0.0.1:0", Exit: true, Pace: 60 * time.Millisecond, Out: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "union read 20000, stream from earliest 20000, lake alone 20000") {
		t.Fatal(out.String())
	}
	for _, want := range []string{"20000 flights upserted", "UPDATE_AFTER", ": null", "routes are left"} {
		if !strings.Contains(out.String(), want) {
			t.Fatalf("the tour shows no %s:\n%s", want, out.String())
		}
	}
}

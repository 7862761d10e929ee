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
}

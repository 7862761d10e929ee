package s3test_test

import (
	"net/http"
	"testing"

	"github.com/firn-data/firn/internal/testkit/s3test"
)

func answers(s *s3test.Server) bool {
	answer, err := http.Get(s.Endpoint + "/health")
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func TestServerStopsAndComesBackAtItsAddress(t *testing.T) {
	s := s3test.Start(t)
	if !answers(s) {
		t.Fatal("does not answer after the start")
	}
	for _, end := range []func(){s.Stop, s.Kill} {
		end()
		if answers(s) {
			t.Error("answers after its end")
		}
		s.Restart()
		if !answers(s) {
			t.Error("does not answer after a restart")
		}
	}
}

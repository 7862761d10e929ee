package restfront

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/internal/apierr"
	"github.com/firn-data/firn/internal/errs"
	"google.golang.org/protobuf/proto"
)

// ServeHTTP answers one REST request.
func (r *Route) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	msg, err := r.message(req)
	if err != nil {
		var s *statusError
		if errors.As(err, &s) {
			apierr.WriteHTTPStatus(w, s.status, s.err)
			return
		}
		apierr.WriteHTTP(w, err)
		return
	}
	body, err := jsonwire.Append(nil, msg)
	if err != nil {
		apierr.WriteHTTP(w, errs.Wrap(errs.Invalid, "encode request", err))
		return
	}
	answer := &recorder{header: http.Header{}}
	r.connect.ServeHTTP(answer, r.call(req, body))
	answer.writeTo(w)
}

// call is the Connect unary request that stands for a REST request. Identity,
// tracing and forwarding headers go along.
func (r *Route) call(req *http.Request, body []byte) *http.Request {
	call := req.Clone(req.Context())
	call.Method = http.MethodPost
	call.URL.Path, call.URL.RawPath, call.URL.RawQuery = r.procedure, "", ""
	call.RequestURI = r.procedure
	for _, h := range []string{"Content-Encoding", "Accept-Encoding", "Content-Length", "Transfer-Encoding"} {
		call.Header.Del(h)
	}
	call.Header.Set("Content-Type", "application/json")
	call.Header.Set("Connect-Protocol-Version", "1")
	call.Body = io.NopCloser(bytes.NewReader(body))
	call.ContentLength = int64(len(body))
	call.TransferEncoding = nil
	return call
}

// recorder keeps a Connect answer until it is whole.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *recorder) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// writeTo passes the answer on, a failure in the form of the plain routes.
func (a *recorder) writeTo(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK)
	for k, v := range a.header {
		switch k {
		case "Content-Length", "Content-Encoding", "Accept-Encoding":
		default:
			w.Header()[k] = v
		}
	}
	if a.status != http.StatusOK {
		status, err := a.failure()
		apierr.WriteHTTPStatus(w, status, err)
		return
	}
	a.body.WriteByte('\n') // for people at a terminal
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	_, _ = w.Write(a.body.Bytes()) // the client has gone; nobody is left to tell
}

// failure reads a Connect error answer.
func (a *recorder) failure() (int, error) {
	var in struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details []struct {
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"details"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &in); err != nil || in.Code == "" {
		return a.status, errs.New(apierr.ClassOfStatus(a.status), "%s", bytes.TrimSpace(a.body.Bytes()))
	}
	out := &errs.Error{Class: apierr.ClassOfCode(in.Code), Msg: in.Message}
	for _, d := range in.Details {
		if info := decodeInfo(d.Type, d.Value); info != nil {
			if class, ok := apierr.ClassByName(info.GetClass()); ok {
				out.Class = class
			}
			out.RetryAfter = time.Duration(info.GetRetryAfterMs()) * time.Millisecond
			for _, v := range info.GetDetails() {
				out.Details = append(out.Details, v.AsInterface())
			}
		}
	}
	if in.Code == "deadline_exceeded" {
		return http.StatusGatewayTimeout, out
	}
	return apierr.Status(out), out
}

func decodeInfo(typ, value string) *firnv1.ErrorInfo {
	info := new(firnv1.ErrorInfo)
	if typ != string(info.ProtoReflect().Descriptor().FullName()) {
		return nil
	}
	b, err := base64.RawStdEncoding.DecodeString(value) // Connect sends it unpadded
	if err != nil || proto.Unmarshal(b, info) != nil {
		return nil
	}
	return info
}

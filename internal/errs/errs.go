// Package errs classifies Firn's errors by what the caller does about them.
//
// A class is the contract between packages: code branches on it with [Is] or
// [ClassOf], never on a message. The text is for a person; it names what is
// wrong, where, and what to do next, and never holds a credential.
package errs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Class says what the caller does about an error.
type Class uint8

// The classes, in no order of severity.
const (
	// Internal is a broken invariant of Firn itself; report it.
	Internal Class = iota
	// Invalid is a request that its sender must fix.
	Invalid
	// NotFound names something that does not exist.
	NotFound
	// Exists names something that exists already.
	Exists
	// Conflict is a lost race or a wrong state: reread, decide again, retry.
	Conflict
	// Fenced means another incarnation took over: stop for good.
	Fenced
	// Unavailable is a passing fault: back off and retry.
	Unavailable
	// Unknown is an outcome that may or may not have happened: resolve it, never assume.
	Unknown
	// Corrupt is data that fails its checksum or its format: stop; the message names object and position.
	Corrupt
	// Exhausted is a limit that passes with time: slow down and retry.
	Exhausted
	// TooLarge is a request over a fixed limit; the message names the limit.
	TooLarge
	// OutOfRange is an offset outside the log; the details hold the valid range.
	OutOfRange
	// Unauthenticated is a missing or wrong credential.
	Unauthenticated
	// PermissionDenied is a valid credential without the right.
	PermissionDenied
	// Unsupported is a media type, operation or feature that is not served.
	Unsupported
	// Closed means that the component was shut down.
	Closed
	// Canceled means that the caller gave up, or ran out of time.
	Canceled
)

var classNames = [...]string{
	"internal", "invalid", "not found", "exists", "conflict", "fenced", "unavailable", "unknown outcome",
	"corrupt", "exhausted", "too large", "out of range", "unauthenticated", "permission denied",
	"unsupported", "closed", "canceled",
}

// String returns the class in words.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Error is an error with a class. Op reads "verb noun" ("append rows"); Msg or
// Cause says why; Details are for programs (JSON-encodable values).
type Error struct {
	Class      Class
	Op         string
	Msg        string
	Details    []any
	RetryAfter time.Duration // a hint for Unavailable and Exhausted; zero is "no hint"
	Cause      error
}

// Error returns "op: message: cause", leaving out what is empty.
func (e *Error) Error() string {
	s := e.Op
	for _, part := range []string{e.Msg, causeText(e.Cause)} {
		if part == "" {
			continue
		}
		if s != "" {
			s += ": "
		}
		s += part
	}
	if s == "" {
		return e.Class.String()
	}
	return s
}

func causeText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// New makes an error of a class with a formatted message.
func New(c Class, format string, args ...any) *Error {
	return &Error{Class: c, Msg: fmt.Sprintf(format, args...)}
}

// Wrap gives err a class and says what was being done. A nil err stays nil.
func Wrap(c Class, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Class: c, Op: op, Cause: err}
}

// In says what was being done when err happened and keeps its class. A nil err stays nil.
func In(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Class: ClassOf(err), Op: op, Cause: err}
}

// ClassOf returns the class of the outermost classified error in err's chain;
// a context's end is Canceled, anything else unclassified is Internal.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Canceled
	}
	return Internal
}

// Is reports whether err is of class c.
func Is(err error, c Class) bool { return err != nil && ClassOf(err) == c }

// RetryAfter returns the first hint in err's chain, or zero.
func RetryAfter(err error) time.Duration {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return 0
		}
		if e.RetryAfter > 0 {
			return e.RetryAfter
		}
		err = e.Cause
	}
	return 0
}

// Details returns the details of every classified error in err's chain, outermost first.
func Details(err error) []any {
	var out []any
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return out
		}
		out = append(out, e.Details...)
		err = e.Cause
	}
	return out
}

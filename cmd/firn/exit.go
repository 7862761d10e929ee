package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/errs"
)

// The exit codes; rootHelp tells them to people.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 3
	exitDenied      = 4
	exitInterrupted = 130
)

// usageError is a command line that cannot be meant.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// errSilent ends a command that has told its failure as its result.
var errSilent = errors.New("a check failed")

func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	}
	switch classOf(err) {
	case errs.Invalid.String(), errs.TooLarge.String():
		return exitUsage
	case errs.Unavailable.String(), errs.Exhausted.String(), errs.Fenced.String(), errs.Closed.String(), errs.Unknown.String(),
		errs.Canceled.String():
		return exitUnavailable
	case errs.Unauthenticated.String(), errs.PermissionDenied.String():
		return exitDenied
	}
	return exitFailed
}

// classOf returns the class's name of an error of an agent or of our own rooms.
func classOf(err error) string {
	var ce *client.Error
	if errors.As(err, &ce) {
		return string(ce.Class)
	}
	return errs.ClassOf(err).String()
}

func detailsOf(err error) []any {
	var ce *client.Error
	if errors.As(err, &ce) {
		return ce.Details
	}
	return errs.Details(err)
}

// maxDetailsShown bounds what a person gets to see; --json shows all.
const maxDetailsShown = 10

// report tells an error on stderr.
func (a *app) report(err error) {
	if errors.Is(err, errSilent) {
		return
	}
	details := detailsOf(err)
	if a.json {
		enc := json.NewEncoder(a.errOut)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(map[string]any{"class": classOf(err), "message": err.Error(), "details": details})
		return
	}
	a.say("firn: %v", err)
	var ce *client.Error
	var dial *net.OpError
	if errors.As(err, &ce) && errors.As(ce, &dial) && dial.Op == "dial" {
		a.say("  no agent answers at %s: start one with \"firn serve\", or say where it is with --server", a.server)
	}
	details = slices.DeleteFunc(slices.Clone(details), inMessage)
	for i, d := range details {
		if i == maxDetailsShown {
			a.say("  … and %d more (--json shows all)", len(details)-i)
			break
		}
		a.say("  %s", detailLine(d))
	}
}

// inMessage reports whether the message tells people all that a detail tells programs.
func inMessage(d any) bool {
	m, ok := d.(map[string]any)
	for _, told := range []string{"position", "limit", "accepted"} {
		if _, has := m[told]; ok && has {
			return true
		}
	}
	return false
}

// detailLine shows a row error as a sentence, anything else as JSON.
func detailLine(d any) string {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Sprint(d)
	}
	var row struct {
		Row    *int64 `json:"row"`
		Column string `json:"column"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(b, &row) == nil && row.Row != nil && row.Reason != "" {
		if row.Column == "" {
			return fmt.Sprintf("row %d: %s", *row.Row, row.Reason)
		}
		return fmt.Sprintf("row %d, column %s: %s", *row.Row, row.Column, row.Reason)
	}
	return string(b)
}

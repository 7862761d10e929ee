package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/errs"
)

// firn runs a command line and returns what it printed.
func firn(t *testing.T, in string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

func TestTablesAreAlignedAndCutForScreens(t *testing.T) {
	var out bytes.Buffer
	long := strings.Repeat("é", 70)
	require.NoError(t, printCSV(strings.NewReader("id,name\n1,Zoë\n22,\"two\nlines\"\n3,"+long+"\n"), &out))
	require.Equal(t, "id  name\n1   Zoë\n22  two lines\n3   "+strings.Repeat("é", 59)+"…\n", out.String())
}

func TestATableOfAnyLengthIsDrawnWhole(t *testing.T) {
	for _, n := range []int{0, 1, widthSample - 1, widthSample, widthSample + 1, 3*widthSample + 7} {
		var csv, out bytes.Buffer
		fmt.Fprintln(&csv, "n")
		for i := range n {
			fmt.Fprintln(&csv, i)
		}
		require.NoError(t, printCSV(&csv, &out))
		require.Equal(t, n+1, strings.Count(out.String(), "\n"))
	}
	var out bytes.Buffer
	broken := io.MultiReader(strings.NewReader("n\n1\n"), failing{})
	require.ErrorContains(t, printCSV(broken, &out), "cut off")
	require.Contains(t, out.String(), "1\n", "what arrived is shown")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("cut off") }

func TestExitCodesFollowTheClassOfTheError(t *testing.T) {
	ctx := t.Context()
	for code, list := range map[int][]error{
		exitOK:     {nil},
		exitFailed: {errors.New("x"), errs.New(errs.NotFound, "x"), &client.Error{Class: client.Conflict}, errSilent, errs.New(errs.Corrupt, "x")},
		exitUsage:  {usagef("x"), fmt.Errorf("in: %w", usagef("x")), &client.Error{Class: client.Invalid}, errs.New(errs.TooLarge, "x")},
		exitUnavailable: {&client.Error{Class: client.Unavailable}, errs.New(errs.Exhausted, "x"),
			&client.Error{Class: client.Unknown}, context.DeadlineExceeded},
		exitDenied: {&client.Error{Class: client.Unauthenticated}, errs.New(errs.PermissionDenied, "x")},
	} {
		for _, err := range list {
			require.Equal(t, code, exitCode(ctx, err), "%v", err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.Equal(t, exitInterrupted, exitCode(ended, context.Canceled))
}

func TestWrongCommandLinesExitWithTwoAndSayWhy(t *testing.T) {
	for _, tc := range []struct {
		says string
		args []string
	}{
		{"unknown command \"frobnicate\"", []string{"frobnicate"}},
		{"unknown command \"x\"", []string{"table", "x"}},
		{"unknown flag", []string{"db", "list", "--frob"}},
		{"accepts 1 arg", []string{"db", "create"}},
		{"database.table", []string{"table", "describe", "orders"}},
		{"must look like 'NAME TYPE", []string{"table", "create", "a.b", "--column", "x"}},
		{"nothing to change", []string{"table", "alter", "a.b"}},
		{"NAME=VALUE", []string{"table", "create", "a.b", "--property", "x"}},
		{"format \"xml\"", []string{"scan", "a.b", "--format", "xml"}},
		{"extension", []string{"append", "a.b", "rows.xml"}},
		{"no such file", []string{"append", "a.b", "missing.csv"}},
		{"none of", []string{"append", "a.b", "--on-error", "maybe"}},
		{"log level", []string{"serve", "--log-level", "loud"}},
		{"server URL", []string{"--server", "localhost:7070", "db", "list"}},
	} {
		code, out, errOut := firn(t, "", tc.args...)
		require.Equal(t, exitUsage, code, "%v: %s", tc.args, errOut)
		require.Contains(t, errOut, tc.says)
		require.Empty(t, out)
	}
}

func TestAnUnreachableAgentExitsWithThree(t *testing.T) {
	t.Setenv("FIRN_SERVER", "http://127.0.0.1:1")
	code, _, errOut := firn(t, "", "agents")
	require.Equal(t, exitUnavailable, code)
	require.Contains(t, errOut, "127.0.0.1:1")
	code, _, errOut = firn(t, "", "agents", "--json")
	require.Equal(t, exitUnavailable, code)
	require.Contains(t, errOut, `"class":"unavailable"`)
}

func TestHelpTellsExitCodesAndHidesTheToken(t *testing.T) {
	t.Setenv("FIRN_TOKEN", "s3cret")
	code, out, _ := firn(t, "", "--help")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "130  interrupted")
	require.NotContains(t, out, "s3cret")
	for _, name := range []string{"serve", "demo", "db", "table", "append", "scan", "tail", "lake", "agents", "fsck", "doctor", "wal", "loadtest", "completion"} {
		require.Contains(t, out, "  "+name+" ", name)
	}
	code, out, _ = firn(t, "", "completion", "bash")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "firn")
}

func TestDoctorFindsTheEmbeddedStoreFit(t *testing.T) {
	code, out, errOut := firn(t, "", "doctor", "--store", "file://"+t.TempDir())
	require.Equal(t, exitOK, code, errOut)
	require.Contains(t, out, "fit for Firn")
}

func TestOneThingIsSingular(t *testing.T) {
	for n, want := range map[int64]string{0: "0 files", 1: "1 file", 2: "2 files"} {
		require.Equal(t, want, plural(n, "file"))
	}
}

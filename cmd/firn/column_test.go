package main

import (
	"encoding/json"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
)

func jsonOf(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := jsonwire.Append(nil, m)
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, json.Unmarshal(b, &v))
	for k, x := range v { // keep what says something
		if x == "" || x == false || x == 0.0 {
			delete(v, k)
		}
	}
	b, err = json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestColumnsAreReadAsTheyAreWrittenInSQL(t *testing.T) {
	for text, want := range map[string]string{
		"order_id long required":                   `{"name":"order_id","type":"long","required":true}`,
		"amount decimal(10, 2)":                    `{"name":"amount","type":"decimal(10, 2)"}`,
		"a struct<x: long, y: list<string>> doc b": `{"name":"a","type":"struct<x: long, y: list<string>>","doc":"b"}`,
		"n int NOT NULL default 7":                 `{"name":"n","type":"int","required":true,"default":7}`,
		"n long default 9007199254740993":          `{"name":"n","type":"long","default":"9007199254740993"}`,
		"s string default ''":                      `{"name":"s","type":"string","default":""}`,
		"s string default 'true' doc 'it is'":      `{"name":"s","type":"string","default":"true","doc":"it is"}`,
		"s string default paid":                    `{"name":"s","type":"string","default":"paid"}`,
		"b boolean default true optional":          `{"name":"b","type":"boolean","default":true}`,
		`l list<int> default [1, 2]`:               `{"name":"l","type":"list<int>","default":[1,2]}`,
		`"odd name" string`:                        `{"name":"odd name","type":"string"}`,
	} {
		col, err := parseColumn(text)
		require.NoError(t, err, text)
		got := jsonOf(t, col)
		if col.Default != nil && col.Default.GetStringValue() == "" && want == `{"name":"s","type":"string","default":""}` {
			require.Equal(t, "", col.Default.AsInterface())
			continue
		}
		require.JSONEq(t, want, got, text)
	}
	for _, bad := range []string{"", "x", "x long requird", "x long default", "x decimal(10", "x string doc 'a", `x string default "a`, "x long not"} {
		_, err := parseColumn(bad)
		require.Error(t, err, bad)
	}
}

func TestChangesKeepTheOrderOfTheCommandLine(t *testing.T) {
	var list []*firnv1.TableChange
	f := pflag.NewFlagSet("alter", pflag.ContinueOnError)
	alterFlags(f, &list)
	require.NoError(t, f.Parse([]string{
		"--set", "fold_interval=10s", "--add-column", "note string default '' after ts", "--rename-column", "amount=total",
		"--set", "a=b=c", "--drop-column", "x", "--widen-column", "qty long", "--move-column", "y first", "--unset", "retention",
		"--partition-by", "day(ts); bucket(4,id)", "--partition-by", "", "--comment", "", "--add-column", "z int first", "--doc", "z=last",
	}))
	require.Len(t, list, 13)
	require.Equal(t, "10s", list[0].SetProperties["fold_interval"])
	require.Equal(t, "ts", list[1].AddColumn.After)
	require.Equal(t, "", list[1].AddColumn.Default.AsInterface())
	require.Equal(t, "total", list[2].RenameColumn.To)
	require.Equal(t, "b=c", list[3].SetProperties["a"])
	require.Equal(t, "long", list[5].WidenColumn.Type)
	require.True(t, list[6].MoveColumn.First)
	require.Equal(t, []any{"day(ts)", "bucket(4,id)"}, list[8].SetPartitionBy.AsSlice())
	require.Empty(t, list[9].SetPartitionBy.Values)
	require.NotNil(t, list[9].SetPartitionBy)
	require.NotNil(t, list[10].SetComment)
	require.True(t, list[11].AddColumn.First)
	for _, bad := range [][]string{{"--rename-column", "a"}, {"--widen-column", "qty"}, {"--move-column", "y"}, {"--set", "x"}, {"--add-column", "n"}} {
		require.Error(t, f.Parse(bad), bad)
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func ExampleClient_CreateTable() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.EnsureDatabase(ctx, "shop"); err != nil {
		log.Fatal(err)
	}
	_, err = c.CreateTable(ctx, &firnv1.CreateTableRequest{
		Database: "shop", Name: "orders", IfNotExists: true,
		Columns: []*firnv1.Column{
			{Name: "order_id", Type: "long", Required: true},
			{Name: "ts", Type: "timestamptz"},
			{Name: "amount", Type: "decimal(10,2)"},
		},
		Buckets: 4, BucketKey: []string{"order_id"}, PartitionBy: []string{"day(ts)"},
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A source that was stopped resumes where its rows are known to have arrived.
func ExampleTable_NewWriter() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	orders := c.Table("shop", "orders")
	state, err := orders.Producer(ctx, "orders-import")
	if err != nil {
		log.Fatal(err)
	}
	w, err := orders.NewWriter(client.WriterOptions{ProducerID: "orders-import", FirstSequence: state.GetWatermark()})
	if err != nil {
		log.Fatal(err)
	}
	for rec := range source(state.GetWatermark()) {
		if err := w.Write(ctx, rec); err != nil {
			log.Fatal(err)
		}
		rec.Release()
	}
	if err := w.Close(ctx); err != nil { // every row is durable, or an error says which are not
		log.Fatal(err)
	}
}

// source stands for whatever can be read again from a row number.
func source(from int64) func(func(arrow.RecordBatch) bool) {
	return func(yield func(arrow.RecordBatch) bool) {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues([]int64{from, from + 1}, nil)
		schema := arrow.NewSchema([]arrow.Field{{Name: "order_id", Type: arrow.PrimitiveTypes.Int64}}, nil)
		yield(array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, 2))
	}
}

// A reader keeps its cursor and starts there next time.
func ExampleTable_Changes() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s := c.Table("shop", "orders").Changes(ctx, client.ChangesOptions{
		Start: client.From(map[int32]int64{0: 120}), Where: "amount > 10",
	})
	defer s.Close()
	for {
		rec, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.NumRows(), "rows; resume from", client.FormatOffsets(s.Cursor()))
		rec.Release()
	}
}

// A primary-key table is written and read by key.
func ExampleTable_Upsert() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:7070")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	users := c.Table("shop", "users")
	type user struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
		Age  int    `json:"age"`
	}
	if _, err := users.Upsert(ctx, user{1, "Ann", 30}, user{2, "Bo", 40}); err != nil {
		log.Fatal(err)
	}
	if _, err := users.UpsertColumns(ctx, []string{"age"}, map[string]any{"id": 1, "age": 31}); err != nil {
		log.Fatal(err)
	}
	if _, err := users.Delete(ctx, map[string]any{"id": 2}); err != nil {
		log.Fatal(err)
	}
}

// Entries come in the order of the keys; null stands for a key without a row.
func ExampleTable_LookupRows() {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"rows":[{"id":1,"name":"Ann"},null]}`)
	}))
	defer agent.Close()
	c, err := client.New(agent.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	rows, err := c.Table("shop", "users").LookupRows(context.Background(), client.LookupOptions{Columns: []string{"id", "name"}},
		map[string]any{"id": 1}, map[string]any{"id": 9})
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range rows {
		fmt.Println(string(row))
	}
	// Output:
	// {"id":1,"name":"Ann"}
	// null
}

// The class of an error says what to do about it.
func ExampleClassOf() {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":"invalid_argument","message":"row 0: column \"qty\": \"many\" is no int","details":[]}`)
	}))
	defer agent.Close()
	c, err := client.New(agent.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Table("shop", "orders").AppendRows(context.Background(), map[string]any{"qty": "many"})
	if client.ClassOf(err) == client.Invalid {
		fmt.Println("fix the row:", err)
	}
	// Output: fix the row: invalid_argument: row 0: column "qty": "many" is no int
}

package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds of a table on a screen.
const (
	widthSample = 500 // rows that decide the widths of columns
	maxCell     = 60  // characters of a cell; longer ones are cut
)

// printCSV draws CSV as aligned columns. The first rows decide the widths, so that
// a table of any length is drawn as it arrives.
func printCSV(r io.Reader, out io.Writer) error {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	w := bufio.NewWriter(out)
	var rows [][]string
	var widths []int
	draw := func() {
		for _, row := range rows {
			drawRow(w, row, widths)
		}
		rows = nil
	}
	for n := 0; ; n++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			draw()
			return w.Flush()
		}
		if err != nil {
			draw()
			return errors.Join(err, w.Flush())
		}
		for i := range row {
			row[i] = cell(row[i])
			if n <= widthSample {
				if i == len(widths) {
					widths = append(widths, 0)
				}
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
			}
		}
		rows = append(rows, row)
		if n == widthSample || (n > widthSample && len(rows) == widthSample) {
			draw()
			if err := w.Flush(); err != nil {
				return err
			}
		}
	}
}

func drawRow(w *bufio.Writer, row []string, widths []int) {
	for i, text := range row {
		_, _ = w.WriteString(text) // kept by the writer until Flush
		if i < len(row)-1 && i < len(widths) {
			_, _ = w.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text))+2))
		}
	}
	_ = w.WriteByte('\n')
}

// cell makes one line of a value, and cuts it when it is long.
func cell(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f { // would move the cursor
			return ' '
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}

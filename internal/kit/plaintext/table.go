package plaintext

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is text in columns.
type Table struct {
	Columns []Column
	Rows    [][]string // each as long as Columns
}

// Column is the head of a column.
type Column struct {
	Title string
	Right bool // aligned, as for numbers
}

// NewTable returns a table without rows. A ">" before a title aligns its column to the right.
func NewTable(titles ...string) Table {
	t := Table{Columns: make([]Column, len(titles))}
	for i, title := range titles {
		t.Columns[i].Title, t.Columns[i].Right = strings.CutPrefix(title, ">")
	}
	return t
}

// widths returns the width of each column.
func (t Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for i, column := range t.Columns {
		widths[i] = utf8.RuneCountInString(column.Title)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// Text writes the table with aligned columns, and an indent before each line.
func (t Table) Text(w io.Writer, indent string) error {
	widths, titles := t.widths(), make([]string, len(t.Columns))
	for i, column := range t.Columns {
		titles[i] = column.Title
	}
	for _, row := range append([][]string{titles}, t.Rows...) {
		var line strings.Builder
		line.WriteString(indent)
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if t.Columns[i].Right {
				line.WriteString(space + cell)
			} else {
				line.WriteString(cell + space)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

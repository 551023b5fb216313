package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is text in columns, as wide as needed.
type Table struct {
	right []bool // the columns that are aligned to the right
	rows  [][]string
}

// NewTable returns a table with that header. A column whose header begins with ">" is
// aligned to the right.
func NewTable(header ...string) *Table {
	t := &Table{right: make([]bool, len(header))}
	for i, h := range header {
		header[i] = strings.TrimPrefix(h, ">")
		t.right[i] = header[i] != h
	}
	t.rows = append(t.rows, header)
	return t
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// String returns the lines, indented, without spaces at their ends.
func (t *Table) String() string {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString("  ")
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// Thousands returns a number with commas.
func Thousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Percent returns a share in percent.
func Percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

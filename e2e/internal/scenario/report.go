package scenario

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Outcome is how a case went.
type Outcome struct {
	Case *Case
	Err  error // nil when it passed
	Took time.Duration
}

// Verdict tells whether a case went as it should. That the peer fails a case is
// right when the case says so, and only then.
func (o Outcome) Verdict(peer bool) (right bool, why string) {
	saysFails := peer && o.Case.Peer != ""
	switch {
	case o.Err == nil && saysFails:
		return false, "passes, but the case says: " + o.Case.Peer
	case o.Err == nil:
		return true, ""
	case saysFails:
		return true, "as the case says: " + o.Case.Peer
	default:
		return false, strings.ReplaceAll(o.Err.Error(), "\n", "; ")
	}
}

// Line is the verdict in one line.
func (o Outcome) Line(peer bool) string {
	right, why := o.Verdict(peer)
	word := "FAIL"
	switch {
	case right && o.Err != nil:
		word = "peer"
	case right:
		word = "ok"
	}
	return strings.TrimRight(fmt.Sprintf("%-4s  %-34s %5.1fs  %s", word, o.Case.Name, o.Took.Seconds(), why), " ")
}

// Totals is the last line of a run.
func Totals(outcomes []Outcome, peer bool) string {
	passed := 0
	for _, o := range outcomes {
		if right, _ := o.Verdict(peer); right {
			passed++
		}
	}
	return fmt.Sprintf("%d passed, %d failed", passed, len(outcomes)-passed)
}

// PrintTable prints the outcomes of the same cases with two proxies side by
// side.
func PrintTable(w io.Writer, names [2]string, columns [2][]Outcome) error {
	var table strings.Builder
	row := func(cells ...any) { fmt.Fprintf(&table, "| %-34s | %-10s | %-10s |\n", cells...) }
	row("case", names[0], names[1])
	row(strings.Repeat("-", 34), strings.Repeat("-", 10), strings.Repeat("-", 10))
	differ := 0
	for i := range min(len(columns[0]), len(columns[1])) {
		a, b := columns[0][i], columns[1][i]
		row(a.Case.Name, passes(a), passes(b))
		if passes(a) != passes(b) {
			differ++
		}
	}
	fmt.Fprintf(&table, "\n%d of %d cases differ\n", differ, min(len(columns[0]), len(columns[1])))
	if _, err := io.WriteString(w, table.String()); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

func passes(o Outcome) string {
	if o.Err != nil {
		return "fails"
	}
	return "passes"
}

// Package terminal is how commands that take a while talk: progress on standard error,
// tables on standard output.
package terminal

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// RedrawPeriod is how often a line on a terminal is drawn anew.
const RedrawPeriod = 100 * time.Millisecond

// Progress says what a command is doing, phase by phase: on a terminal by a line that changes, and
// elsewhere by a line at the beginning and the end of each phase. It belongs to one
// goroutine.
type Progress struct {
	out      io.Writer
	terminal bool
	phases   int

	phase  int
	title  string
	began  time.Time
	redraw time.Time
}

// NewProgress returns the progress of a command that has that many phases.
func NewProgress(out io.Writer, phases int) *Progress {
	return &Progress{out: out, terminal: isTerminal(out), phases: phases}
}

// isTerminal reports whether what is written there is seen at once, on a terminal.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Begin begins the next phase.
func (p *Progress) Begin(title string) {
	p.phase++
	p.title, p.began, p.redraw = title, time.Now(), time.Time{}
	if p.terminal {
		p.Update("")
	} else {
		p.printf("[%d/%d] %s ...\n", p.phase, p.phases, title)
	}
}

// Update says how far the phase is.
func (p *Progress) Update(state string) {
	now := time.Now()
	if p.terminal && now.Sub(p.redraw) >= RedrawPeriod {
		p.redraw = now
		p.printf("\r\x1b[K[%d/%d] %s ... %s", p.phase, p.phases, p.title, state)
	}
}

// End ends the phase with its result.
func (p *Progress) End(result string) {
	took := time.Since(p.began).Seconds()
	if p.terminal {
		p.printf("\r\x1b[K[%d/%d] %s: %s, %.1f s\n", p.phase, p.phases, p.title, result, took)
	} else {
		p.printf("      %s, %.1f s\n", result, took)
	}
}

// Stop leaves the line as it is: what comes next begins on one of its own.
func (p *Progress) Stop() {
	if p.terminal {
		p.printf("\n")
	}
}

// printf prints. A terminal that is gone is not what the command is about.
func (p *Progress) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

package demo

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// numPhases is how many phases the demo has.
const numPhases = 4

// redrawPeriod is how often a line on a terminal is drawn anew.
const redrawPeriod = 100 * time.Millisecond

// progress says what the demo is doing: on a terminal by a line that changes, and
// elsewhere by a line at the beginning and the end of each phase. It belongs to one
// goroutine.
type progress struct {
	out      io.Writer
	terminal bool

	phase  int
	title  string
	began  time.Time
	redraw time.Time
}

func newProgress(out io.Writer) *progress {
	return &progress{out: out, terminal: isTerminal(out)}
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

// begin begins the next phase.
func (p *progress) begin(title string) {
	p.phase++
	p.title, p.began, p.redraw = title, time.Now(), time.Time{}
	if p.terminal {
		p.update("")
	} else {
		p.printf("[%d/%d] %s ...\n", p.phase, numPhases, title)
	}
}

// update says how far the phase is.
func (p *progress) update(state string) {
	now := time.Now()
	if p.terminal && now.Sub(p.redraw) >= redrawPeriod {
		p.redraw = now
		p.printf("\r\x1b[K[%d/%d] %s ... %s", p.phase, numPhases, p.title, state)
	}
}

// end ends the phase with its result.
func (p *progress) end(result string) {
	took := time.Since(p.began).Seconds()
	if p.terminal {
		p.printf("\r\x1b[K[%d/%d] %s: %s, %.1f s\n", p.phase, numPhases, p.title, result, took)
	} else {
		p.printf("      %s, %.1f s\n", result, took)
	}
}

// stop leaves the line as it is: what comes next begins on one of its own.
func (p *progress) stop() {
	if p.terminal {
		p.printf("\n")
	}
}

// printf prints. A terminal that is gone is not what the demo is about.
func (p *progress) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

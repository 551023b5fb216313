package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	table := NewTable("NAME", ">N")
	table.Add("é", "1,000")
	table.Add("longer")
	want := "  NAME        N\n  é       1,000\n  longer\n"
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100", -1000: "-1,000"} {
		if got := Thousands(n); got != want {
			t.Errorf("Thousands(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestProgressWithoutTerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, 4)
	p.Begin("connecting")
	p.Update("half done")
	p.End("0 failed")
	p.Stop()
	if want := "[1/4] connecting ...\n      0 failed, 0.0 s\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}

func TestProgressOnTerminal(t *testing.T) {
	var out bytes.Buffer
	p := &Progress{out: &out, terminal: true, phases: 4}
	p.Begin("connecting")
	p.redraw = time.Time{}
	p.Update("half done")
	p.Update("too soon")
	p.End("0 failed")
	lines := strings.Split(out.String(), "\r\x1b[K")
	want := []string{"", "[1/4] connecting ... ", "[1/4] connecting ... half done", "[1/4] connecting: 0 failed, 0.0 s\n"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

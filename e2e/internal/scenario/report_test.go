package scenario

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOutcome(t *testing.T) {
	failed := errors.New("one\ntwo")
	for name, test := range map[string]struct {
		says string // about the peer
		err  error
		peer bool
		want string
	}{
		"passes":                      {"", nil, false, "ok    01-web                               1.5s"},
		"fails":                       {"", failed, false, "FAIL  01-web                               1.5s  one; two"},
		"the peer passes":             {"", nil, true, "ok    01-web                               1.5s"},
		"the peer fails":              {"", failed, true, "FAIL  01-web                               1.5s  one; two"},
		"fails where the peer does":   {"fails (x)", failed, false, "FAIL  01-web                               1.5s  one; two"},
		"the peer fails as said":      {"fails (x)", failed, true, "peer  01-web                               1.5s  as the case says: fails (x)"},
		"the peer passes, not said":   {"fails (x)", nil, true, "FAIL  01-web                               1.5s  passes, but the case says: fails (x)"},
		"passes where the peer fails": {"fails (x)", nil, false, "ok    01-web                               1.5s"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Outcome{Case: &Case{Name: "01-web", Peer: test.says}, Err: test.err, Took: 1500 * time.Millisecond}
			if got := o.Line(test.peer); got != test.want {
				t.Errorf("\ngot  %q\nwant %q", got, test.want)
			}
			want := "1 passed, 0 failed"
			if strings.HasPrefix(test.want, "FAIL") {
				want = "0 passed, 1 failed"
			}
			if got := Totals([]Outcome{o}, test.peer); got != want {
				t.Errorf("totals %s, want %s", got, want)
			}
		})
	}
}

func TestPrintTable(t *testing.T) {
	a, b := &Case{Name: "a"}, &Case{Name: "b"}
	var out strings.Builder
	err := PrintTable(&out, [2]string{"nftproxy", "kube-proxy"}, [2][]Outcome{
		{{Case: a}, {Case: b}},
		{{Case: a}, {Case: b, Err: errors.New("x")}},
	})
	want := strings.Join([]string{
		"| case                               | nftproxy   | kube-proxy |",
		"| ---------------------------------- | ---------- | ---------- |",
		"| a                                  | passes     | passes     |",
		"| b                                  | passes     | fails      |",
		"", "1 of 2 cases differ", "",
	}, "\n")
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
}

package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClipComment(t *testing.T) {
	long := strings.Repeat("x", MaxComment-1)
	for _, c := range []struct{ name, comment, want string }{
		{"empty", "", ""},
		{"short", "default/web:http", "default/web:http"},
		{"just fits", long + "y", long + "y"},
		{"one byte too long", long + "yz", long + "y"},
		{"the last character fits", long[1:] + "é", long[1:] + "é"},
		{"two bytes do not fit", long + "é", long},
		{"three bytes do not fit", long[1:] + "日", long[1:]},
		{"four bytes do not fit", long[2:] + "𝛼", long[2:]},
		{"combining characters", strings.Repeat("e\u0301", 50), strings.Repeat("e\u0301", 42) + "e"},
		{"continuation bytes alone", strings.Repeat("\x80", 200), ""},
	} {
		if got := clipComment(c.comment); got != c.want {
			t.Errorf("%s: %q became %q, want %q", c.name, c.comment, got, c.want)
		}
	}
}

func FuzzClipComment(f *testing.F) {
	f.Add("default/web:http")
	f.Add(strings.Repeat("日本", 30))
	f.Add(strings.Repeat("x", 127) + "é")
	f.Add(strings.Repeat("\x80", 200))
	f.Fuzz(func(t *testing.T, s string) {
		got := clipComment(s)
		switch {
		case len(got) > MaxComment:
			t.Errorf("%d bytes are left", len(got))
		case !strings.HasPrefix(s, got):
			t.Errorf("%q is no beginning of %q", got, s)
		case len(s) <= MaxComment && got != s:
			t.Errorf("%q was cut to %q", s, got)
		case utf8.ValidString(s) && !utf8.ValidString(got):
			t.Errorf("%q ends within a character", got)
		case utf8.ValidString(s) && len(s) > MaxComment && len(got) <= MaxComment-utf8.UTFMax:
			t.Errorf("%d bytes are left, one more character fits", len(got))
		}
	})
}

// Elements are ordered by set, address, protocol, port and slot.
func TestElementsAreOrdered(t *testing.T) {
	element := func(set SetID, addr string, p Protocol, port uint16, slot uint32) Element {
		return Element{Set: set, Key: Key{Addr: netip.MustParseAddr(addr), Protocol: p, Port: port, Slot: slot}}
	}
	ascending := []Element{
		element(ClusterIPs, "10.0.0.9", SCTP, 9, 9),
		element(Endpoints, "10.0.0.1", TCP, 80, 9),
		element(Endpoints, "10.0.0.2", TCP, 443, 9),
		element(Endpoints, "10.0.0.2", UDP, 53, 9),
		element(Endpoints, "10.0.0.2", UDP, 443, 1),
		element(Endpoints, "10.0.0.2", UDP, 443, 2),
		element(Endpoints, "10.0.0.10", TCP, 1, 0),
		element(Endpoints, "fd00::1", TCP, 1, 0),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.Compare(b), max(-1, min(1, i-j)); got != want {
				t.Errorf("%s compared to %s: %d, want %d", a.AppendText(nil), b.AppendText(nil), got, want)
			}
		}
	}
}

func TestElementText(t *testing.T) {
	frontend := Key{Addr: netip.MustParseAddr("10.96.0.10"), Protocol: TCP, Port: 80}
	slot := Key{Addr: netip.MustParseAddr("fd00::10"), Protocol: SCTP, Port: 80, Slot: 3}
	for _, c := range []struct {
		e    Element
		want string
	}{
		{Element{Set: ClusterIPs, Key: frontend}, `10.96.0.10`},
		{Element{Set: NoEndpointsReject, Key: frontend, Comment: "default/web:http"}, `10.96.0.10 . tcp . 80 comment "default/web:http"`},
		{Element{Set: Hairpin, Key: frontend}, `10.96.0.10 . 10.96.0.10 . tcp . 80`},
		{Element{Set: ServiceIPs, Key: frontend, Chain: "random-4"}, `10.96.0.10 . tcp . 80 : goto random-4`},
		{Element{Set: Endpoints, Key: slot, Endpoint: netip.MustParseAddrPort("[fd00::1]:8080")}, `fd00::10 . sctp . 80 . 3 : fd00::1 . 8080`},
	} {
		if got := string(c.e.AppendText(nil)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Sets are in the order of their IDs, with names of their own. Only an element
// without a value can be shared.
func TestSets(t *testing.T) {
	names := map[string]bool{}
	for i, s := range Sets() {
		if SetID(i).Shared() && s.Value != NoValue || s.Value != SetID(i).Value() || names[s.Name] || len(s.Key) == 0 {
			t.Errorf("set %d is %+v", i, s)
		}
		names[s.Name] = true
		if i := slices.Index(s.Key, Slot); i >= 0 && i != len(s.Key)-1 {
			t.Errorf("the slot is not last in the key of %s", s.Name)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("there is a set beyond the last")
		}
	}()
	_ = numSets.Set()
}

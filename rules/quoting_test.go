package rules_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// TestCommentsReachTheKernelUnchanged names service ports in every way that
// Validate accepts and that nft could misread: each printable character of ASCII
// first, last and in the middle, other scripts, and names that are nft syntax.
func TestCommentsReachTheKernelUnchanged(t *testing.T) {
	names := []string{"größe-日本語", "e\u0301", "𝛼", "x } } table ip evil { }", "a : goto services", "# no comment", "$variable @set", "/* */", "*"}
	for c := ' '; c <= '~'; c++ {
		if c != '"' && c != '\\' {
			names = append(names, string(c)+"a", "a"+string(c), "a"+string(c)+"b")
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var services []*rules.Compiled
	want := map[string]bool{}
	for i, name := range names {
		sp := rules.ServicePort{
			ServicePortKey: rules.ServicePortKey{
				ServicePortName: rules.ServicePortName{Namespace: name, Name: "web", Port: name, Protocol: rules.TCP}, Family: rules.IPv4,
			},
			Frontends: []rules.Frontend{{Kind: rules.ClusterIP, Addr: address(rules.IPv4, 96, i+1, 80)}},
		}
		c, err := rules.Compile(rules.Config{}, sp, nil)
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, c)
		want[sp.ServicePortName.String()] = true
	}
	var text strings.Builder
	if err := rules.NewRuleset(rules.Config{}, services).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	ns := nstest.New(t)
	ns.MustNFT(t, text.String(), "-f", "-")
	for _, comment := range comments(t, ns.MustNFT(t, "", "-j", "list", "set", "ip", rules.TableName, rules.NoEndpointsReject.Set().Name)) {
		if !want[comment] {
			t.Errorf("no service port has the comment %q", comment)
		}
		delete(want, comment)
	}
	for comment := range want {
		t.Errorf("the comment %q is not listed", comment)
	}
}

// comments returns the comments of the elements in nft's JSON.
func comments(t *testing.T, listing string) []string {
	t.Helper()
	var l struct {
		Objects []struct {
			Set struct {
				Elements []struct {
					Element struct {
						Comment string `json:"comment"`
					} `json:"elem"`
				} `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(listing), &l); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, o := range l.Objects {
		for _, e := range o.Set.Elements {
			list = append(list, e.Element.Comment)
		}
	}
	return list
}

// A name that could end the comment, and go on as other syntax, is not compiled.
func TestNamesCannotLeaveTheirQuotes(t *testing.T) {
	for _, name := range []string{
		`x" } } table ip evil {}`, `"`, `x\`, "x\n", "x\r", "x\x00y", "x\x7f", "x\u0085", "x\u2028", "\xc3", "x\xc3\"",
	} {
		for i := range 3 {
			names := [3]string{"default", "web", "http"}
			names[i] = name
			_, err := rules.Compile(rules.Config{}, rules.ServicePort{
				ServicePortKey: rules.ServicePortKey{
					ServicePortName: rules.ServicePortName{Namespace: names[0], Name: names[1], Port: names[2], Protocol: rules.TCP},
					Family:          rules.IPv4,
				},
				Frontends: []rules.Frontend{{Kind: rules.ClusterIP, Addr: address(rules.IPv4, 96, 1, 80)}},
			}, nil)
			if err == nil || !strings.Contains(err.Error(), "cannot be quoted in nft syntax") {
				t.Errorf("the names %q: got error %v", names, err)
			}
		}
	}
}

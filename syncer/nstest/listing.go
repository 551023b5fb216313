package nstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Listing returns what `nft -j list ruleset` prints in the namespace, one line an
// object, in a form that depends on the rules alone; see Normalize.
func (ns *NS) Listing(tb testing.TB) []string {
	tb.Helper()
	return Normalize(tb, []byte(ns.MustNFT(tb, "", "-j", "list", "ruleset")))
}

// Normalize takes what `nft -j` prints and returns one line an object, without
// what may differ between equal rulesets: handles, nft's version, the order of
// sets, chains and elements, and the name of the type of a slot number, which is
// "integer" where nft made the set with typeof and "mark" where we did, and the flag
// "dynamic", which nft 1.0.6 knows and does not print in JSON.
// The order of rules within a chain stays.
func Normalize(tb testing.TB, text []byte) []string {
	tb.Helper()
	var listing struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(text, &listing); err != nil {
		tb.Fatalf("parse the JSON of nft: %v", err)
	}
	var lines []string
	ruleNumber := map[string]int{}
	for _, object := range listing.Objects {
		for kind, o := range object {
			if kind == "metainfo" {
				continue
			}
			delete(o, "handle")
			if kind == "rule" {
				chain := fmt.Sprint(o["family"], o["table"], o["chain"])
				ruleNumber[chain]++
				o["number"] = ruleNumber[chain]
			}
			normalizeSet(tb, o)
			lines = append(lines, kind+" "+mustJSON(tb, o))
		}
	}
	slices.Sort(lines)
	return lines
}

func normalizeSet(tb testing.TB, o map[string]any) {
	if types, ok := o["type"].([]any); ok && types[len(types)-1] == "integer" {
		types[len(types)-1] = "mark"
	}
	if flags, ok := o["flags"].([]any); ok {
		o["flags"] = slices.DeleteFunc(flags, func(f any) bool { return f == "dynamic" })
	}
	elements, ok := o["elem"].([]any)
	if !ok {
		return
	}
	slices.SortFunc(elements, func(a, b any) int {
		return strings.Compare(mustJSON(tb, a), mustJSON(tb, b))
	})
}

func mustJSON(tb testing.TB, v any) string {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatalf("encode as JSON: %v", err)
	}
	return string(text)
}

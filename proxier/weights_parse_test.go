package proxier

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParseWeights(t *testing.T) {
	tests := []struct {
		text string
		want []Weight
		err  string // if it is not empty
	}{
		{text: "*=1", want: []Weight{{By: SelectAll, Weight: 1}}},
		{
			text: "pod:api-canary-*=5,*=95",
			want: []Weight{{By: SelectByPod, Pattern: "api-canary-*", Weight: 5}, {By: SelectAll, Weight: 95}},
		},
		{
			text: " zone:eu-1a = 1000 ,\n\tnode:worker-1.example=0\n",
			want: []Weight{{By: SelectByZone, Pattern: "eu-1a", Weight: 1000}, {By: SelectByNode, Pattern: "worker-1.example"}},
		},
		{text: `pod:api-[0-9]?-\*=1`, want: []Weight{{By: SelectByPod, Pattern: `api-[0-9]?-\*`, Weight: 1}}},
		{
			text: "addr:10.1.2.3/8=1,addr:10.1.2.3=2,addr:2001:db8::1/32=3,addr:2001:db8::1=4,addr:::ffff:10.0.0.1=5",
			want: []Weight{
				{By: SelectByAddr, CIDR: netip.MustParsePrefix("10.0.0.0/8"), Weight: 1},
				{By: SelectByAddr, CIDR: netip.MustParsePrefix("10.1.2.3/32"), Weight: 2},
				{By: SelectByAddr, CIDR: netip.MustParsePrefix("2001:db8::/32"), Weight: 3},
				{By: SelectByAddr, CIDR: netip.MustParsePrefix("2001:db8::1/128"), Weight: 4},
				{By: SelectByAddr, CIDR: netip.MustParsePrefix("10.0.0.1/32"), Weight: 5},
			},
		},
		{text: "", err: `"" is not selector=weight, separated by commas`},
		{text: "*=1,", err: `"" is not selector=weight, separated by commas`},
		{text: "*=1,,*=2", err: `"" is not selector=weight, separated by commas`},
		{text: "*=1;*=2", err: `"*=1;*=2": the weight "1;*=2" is not an integer from 0 to 1000`},
		{text: "*", err: `"*" is not selector=weight, separated by commas`},
		{text: "*=", err: `"*=": the weight "" is not an integer from 0 to 1000`},
		{text: "*=1001", err: `"*=1001": the weight "1001" is not an integer from 0 to 1000`},
		{text: "*=-1", err: `"*=-1": the weight "-1" is not an integer from 0 to 1000`},
		{text: "*=50%", err: `"*=50%": the weight "50%" is not an integer from 0 to 1000`},
		{text: "*=0.5", err: `"*=0.5": the weight "0.5" is not an integer from 0 to 1000`},
		{text: "=1", err: `"" is not zone:NAME, node:NAME, pod:PATTERN, addr:CIDR or *`},
		{text: "web-0=1", err: `"web-0" is not zone:NAME, node:NAME, pod:PATTERN, addr:CIDR or *`},
		{text: "Pod:web-0=1", err: `"Pod:web-0" is not zone:NAME, node:NAME, pod:PATTERN, addr:CIDR or *`},
		{text: "pod=1", err: `"pod" is not zone:NAME, node:NAME, pod:PATTERN, addr:CIDR or *`},
		{text: "zone:=1", err: `"zone:": a zone is a value of the label topology.kubernetes.io/zone`},
		{text: "zone:eu-*=1", err: `"zone:eu-*": a zone is a value of the label topology.kubernetes.io/zone`},
		{text: "node:=1", err: `"node:": a node is the name of a Node`},
		{text: "node:Worker=1", err: `"node:Worker": a node is the name of a Node`},
		{text: "pod:=1", err: `"pod:": a pod is a name, or a pattern of names, without spaces`},
		{text: "pod: web-0=1", err: `"pod: web-0": a pod is a name, or a pattern of names, without spaces`},
		{text: "pod:web-[0=1", err: `"pod:web-[0": syntax error in pattern: a pattern has *, ? and [a-z], and \ before these if they stand for themselves`},
		{text: "pod:x*y[=1", err: `"pod:x*y[": syntax error in pattern: a pattern has *, ? and [a-z], and \ before these if they stand for themselves`},
		{text: "addr:10.0.0.0/33=1", err: `"addr:10.0.0.0/33": "10.0.0.0/33" is not a range of addresses`},
		{text: "addr:10.0.0=1", err: `"addr:10.0.0": "10.0.0" is not an IP address`},
		{text: "addr:fe80::1%eth0=1", err: `"addr:fe80::1%eth0": "fe80::1%eth0" is not an IP address`},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			got, err := parseWeights(test.text)
			var text string
			if err != nil {
				text = err.Error()
			}
			if text != test.err || !slices.Equal(got, test.want) {
				t.Errorf("got %+v, error %s\nwant %+v, error %s", got, text, test.want, test.err)
			}
		})
	}
}

// printWeights returns the shortest text of the weights.
func printWeights(weights []Weight) string {
	kinds := map[SelectBy]string{SelectAll: "*", SelectByZone: "zone:", SelectByNode: "node:", SelectByPod: "pod:", SelectByAddr: "addr:"}
	parts := make([]string, len(weights))
	for i, w := range weights {
		parts[i] = kinds[w.By] + w.Pattern
		if w.CIDR.IsValid() {
			parts[i] += w.CIDR.String()
		}
		parts[i] += "=" + strconv.Itoa(int(w.Weight))
	}
	return strings.Join(parts, ",")
}

// What is accepted is what it says: printed and parsed again it is the same.
func FuzzParseWeights(f *testing.F) {
	for _, text := range []string{
		"pod:api-canary-*=5,*=95", " zone:eu-1a = 1000 ,node:worker-1=0", `pod:[a-c]\?=7`, "addr:10.0.0.0/8=1,addr:2001:db8::1=2,addr:::ffff:10.0.0.1/104=3", "*=1001", "",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		weights, err := parseWeights(text)
		if (err == nil) != (len(weights) > 0) {
			t.Fatalf("%v, error %v", weights, err)
		}
		if err != nil {
			return
		}
		checkWeights(t, weights)
		again, err := parseWeights(printWeights(weights))
		if err != nil || !slices.Equal(again, weights) {
			t.Errorf("%s: got %+v, error %v\nwant %+v", printWeights(weights), again, err, weights)
		}
	})
}

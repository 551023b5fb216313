package object

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseKey(t *testing.T) {
	for text, want := range map[string]Key{
		"Service/default/web":         {Service, "default", "web"},
		"EndpointSlice/other/web-abc": {EndpointSlice, "other", "web-abc"},
		"Node/node1":                  {Node, "", "node1"},
		"ServiceCIDR/extra":           {ServiceCIDR, "", "extra"},
	} {
		got, err := ParseKey(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Service", "Service/web", "Service//web", "Service/default/", "Node/a/b", "Pod/default/web"} {
		if got, err := ParseKey(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestDecode(t *testing.T) {
	o, err := Decode([]byte(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
		"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := KeyOf(o).String(); got != "Service/default/web" {
		t.Errorf("key %s", got)
	}
	for text, want := range map[string]string{
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIp": "x"}}`: "clusterIp",
		`{"apiVersion": "v1", "kind": "Service", "metadata": {}}`:                                          "without a name",
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}`:                           "is not one of",
		`{"apiVersion": "v2", "kind": "Service", "metadata": {"name": "web"}}`:                             "v2",
		`{"metadata": {"name": "web"}}`:                                                                    "Kind",
		`[]`:                                                                                               "read an object",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", text, err, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	o, err := Decode([]byte(`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web"},
		"addressType": "IPv4", "ports": [{"port": 80}, {"port": 81, "protocol": "UDP"}, {"name": "any"}],
		"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["fd00::1"]}, {"addresses": ["not-one"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Endpoints(o)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.1:81"),
		netip.MustParseAddrPort("[fd00::1]:80"), netip.MustParseAddrPort("[fd00::1]:81"),
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
}

func TestMerge(t *testing.T) {
	type fields = map[string]any
	for name, test := range map[string]struct{ value, patch, want fields }{
		"empty":        {nil, nil, fields{}},
		"new field":    {fields{"a": 1}, fields{"b": 2}, fields{"a": 1, "b": 2}},
		"replaced":     {fields{"a": 1}, fields{"a": []any{2}}, fields{"a": []any{2}}},
		"removed":      {fields{"a": fields{"b": 1, "c": 2}}, fields{"a": fields{"b": nil}}, fields{"a": fields{"c": 2}}},
		"not there":    {fields{}, fields{"a": fields{"b": nil}}, fields{"a": fields{}}},
		"other type":   {fields{"a": 1}, fields{"a": fields{"b": 2}}, fields{"a": fields{"b": 2}}},
		"merged below": {fields{"a": fields{"b": 1}}, fields{"a": fields{"c": 2}}, fields{"a": fields{"b": 1, "c": 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Merge(test.value, test.patch)); diff != "" {
				t.Errorf("merged (-want +got)\n%s", diff)
			}
		})
	}
}

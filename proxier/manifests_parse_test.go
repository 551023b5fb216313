package proxier

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// describeObject prints what is used of an object on one line.
func describeObject(key objectKey, o object) string {
	switch {
	case o.service != nil:
		var addrs []netip.Addr
		for _, a := range o.service.Addrs {
			addrs = append(addrs, a.Addr)
		}
		return fmt.Sprintf("%s %v %s", key, addrs, describePorts(o.service.Ports))
	case o.slice != nil:
		words := []string{fmt.Sprintf("%s of %s weight %d %s", key, o.slice.Service, o.slice.Weight, describePorts(o.slice.Ports))}
		for _, e := range o.slice.Endpoints {
			words = append(words, fmt.Sprintf("%s local=%t ready=%t serving=%t terminating=%t", e.Addr, e.Local, e.Ready, e.Serving, e.Terminating))
		}
		return strings.Join(words, " ")
	case o.node != nil:
		return fmt.Sprintf("%s %v %v zone=%s deleting=%t,%t", key, o.node.Addrs, o.node.PodCIDRs, o.node.Zone, o.node.Deleting, o.node.ToBeDeleted)
	case o.serviceCIDR != nil:
		return fmt.Sprintf("%s %v", key, o.serviceCIDR.cidrs)
	default:
		return key.String() + " -"
	}
}

// describePorts prints the name, protocol and number of ports, and the NodePort if there
// is one.
func describePorts(ports []Port) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = fmt.Sprintf("{%s %s %d}", p.Name, p.Protocol, p.Number)
		if p.NodePort != 0 {
			words[i] = fmt.Sprintf("{%s %s %d node %d}", p.Name, p.Protocol, p.Number, p.NodePort)
		}
	}
	return "[" + strings.Join(words, " ") + "]"
}

func describeObjects(objects map[objectKey]object) (lines []string) {
	for _, key := range slices.SortedFunc(maps.Keys(objects), objectKey.compare) {
		lines = append(lines, describeObject(key, objects[key]))
	}
	return lines
}

// The output of kubectl get services,endpointslices -A -o yaml.
func TestParseKubectlOutput(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "manifests", "kubectl-get.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := parseManifest(data, "worker")
	if err != nil {
		t.Fatal(err)
	}
	if len(m.problems) > 0 || m.unnamed || len(m.unusable) > 0 {
		t.Errorf("problems: %v", m.problems)
	}
	want := []string{
		"EndpointSlice default/kubernetes of kubernetes weight 1 [{https tcp 6443}]" +
			" 172.18.0.2 local=false ready=true serving=true terminating=false",
		"EndpointSlice kube-system/kube-dns-8rwcv of kube-dns weight 1 [{dns-tcp tcp 53} {dns udp 53} {metrics tcp 9153}]" +
			" 10.244.0.3 local=false ready=true serving=true terminating=false" +
			" 10.244.1.4 local=true ready=false serving=true terminating=true",
		"EndpointSlice shop/db-7hbtz -",
		"EndpointSlice shop/web-2vqkd of web weight 3 [{ tcp 8080}] 10.244.1.17 local=true ready=true serving=true terminating=false",
		"EndpointSlice shop/web-x7l9p of web weight 1 [{ tcp 8080}] fd00:10:244:1::11 local=true ready=true serving=true terminating=false",
		"Service default/kubernetes [10.96.0.1] [{https tcp 443}]",
		"Service kube-system/kube-dns [10.96.0.10] [{dns udp 53} {dns-tcp tcp 53} {metrics tcp 9153}]",
		"Service shop/db -",
		"Service shop/payment -",
		"Service shop/web [10.96.41.7 fd00:10:96::2a07] [{ tcp 80}]",
	}
	if diff := cmp.Diff(want, describeObjects(m.objects)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	key := objectKey{kindService, types.NamespacedName{Namespace: "kube-system", Name: "kube-dns"}}
	if created := m.objects[key].service.Created.UTC().Format("2006-01-02 15:04:05"); created != "2026-10-01 08:00:04" {
		t.Errorf("created %s", created)
	}
}

// The output of kubectl get nodes,servicecidrs -o yaml.
func TestParseKubectlNodes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "manifests", "kubectl-get-nodes.yaml"))
	must(t, err)
	m, err := parseManifest(data, "worker")
	must(t, err)
	if len(m.problems) > 0 || m.unnamed || len(m.unusable) > 0 {
		t.Errorf("problems: %v", m.problems)
	}
	want := []string{
		"Node worker [172.18.0.3 fc00:f853:ccd:e793::3 203.0.113.20] [10.244.1.0/24 fd00:10:244:1::/64] zone=zone-b deleting=false,true",
		"ServiceCIDR kubernetes [10.96.0.0/16 fd00:10:96::/112]",
	}
	if diff := cmp.Diff(want, describeObjects(m.objects)); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

const (
	webYAML = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
`
	webSliceYAML = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.1.10]}]
`
	nodeYAML = `apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {topology.kubernetes.io/zone: zone-a}}
spec: {podCIDRs: [10.244.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.0.2.7}]}
`
	cidrYAML = `apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: extra}
spec: {cidrs: [10.112.0.0/16]}
`
	nodeLine  = "Node node-1 [192.0.2.7] [10.244.1.0/24] zone=zone-a deleting=false,false"
	webLine   = "Service default/web [10.96.0.10] [{ tcp 80}]"
	sliceLine = "EndpointSlice default/web-1 of web weight 1 [{ tcp 8080}] 10.244.1.10 local=false ready=true serving=true terminating=false"
)

func TestParseManifest(t *testing.T) {
	tests := []struct {
		name     string
		data     string
		objects  []string
		problems []string
		unusable string
		unnamed  bool
	}{
		{name: "nothing"},
		{name: "only comments and empty documents", data: "# nothing\n---\n---\n\n---\n# here\n"},
		{name: "what an API server fills in is filled in", data: webYAML + "---\n" + webSliceYAML, objects: []string{sliceLine, webLine}},
		{name: "empty documents between", data: "---\n# first\n---\n" + webYAML + "---\n---\n" + webSliceYAML + "---\n", objects: []string{sliceLine, webLine}},
		{name: "line ends of Windows", data: strings.ReplaceAll(webYAML+"---\n"+webSliceYAML, "\n", "\r\n"), objects: []string{sliceLine, webLine}},
		{
			name:    "JSON, one after the other, with tabs",
			data:    "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Service\",\n\t\"metadata\": {\"name\": \"web\"}, \"spec\": {\"clusterIP\": \"10.96.0.10\", \"ports\": [{\"port\": 80}]}}\n{\"apiVersion\": \"v1\", \"kind\": \"Namespace\"}",
			objects: []string{webLine},
		},
		{name: "YAML that begins like JSON", data: "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}}", objects: []string{webLine}},
		{
			name: "both families in the order of the addresses",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIPs: ['fd00::1', 10.96.0.10], ports: [{port: 80}]}",
			objects: []string{
				"Service default/web [fd00::1 10.96.0.10] [{ tcp 80}]",
			},
		},
		{
			name:    "a list of one kind, whose items do not say it",
			data:    "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: web}\n  spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}",
			objects: []string{webLine},
		},
		{
			name: "a list of slices",
			data: "apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n- {addressType: IPv4, metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}, " +
				"ports: [{port: 8080}], endpoints: [{addresses: [10.244.1.10]}]}",
			objects: []string{sliceLine},
		},
		{
			name: "other kinds",
			data: "apiVersion: apps/v1\nkind: Deployment\nspec: 7\n---\napiVersion: v1\nkind: Pod\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n",
		},
		{
			name:    "this node, and its namespace, which it has not",
			data:    strings.Replace(nodeYAML, "name: node-1", "name: node-1, namespace: default", 1),
			objects: []string{nodeLine},
		},
		{
			name: "other nodes, whatever is wrong with them",
			data: strings.ReplaceAll(nodeYAML, "node-1", "node-2") + "---\napiVersion: v1\nkind: Node\n---\napiVersion: v1\nkind: Node\n" +
				"metadata: {name: node-3, labels: 7}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: [node-1]}\n---\n" + nodeYAML,
			objects: []string{nodeLine},
		},
		{
			name: "something is wrong with this node", data: strings.ReplaceAll(nodeYAML, "192.0.2.7", "192.0.2.700"),
			objects:  []string{strings.ReplaceAll(nodeLine, "192.0.2.7", "")},
			problems: []string{`document 1 (line 1): Node node-1: status.addresses[0].address: "192.0.2.700" is not an IP address`},
		},
		{
			name: "a wrong type in this node", data: strings.ReplaceAll(nodeYAML, "[10.244.1.0/24]", "10.244.1.0/24"), unusable: "Node node-1",
			problems: []string{"document 1 (line 1): Node node-1: json: cannot unmarshal string into Go struct field NodeSpec.spec.podCIDRs of type []string"},
		},
		{name: "ServiceCIDRs of both versions", data: cidrYAML + "---\n" + strings.NewReplacer("/v1", "/v1beta1", "extra", "old").Replace(cidrYAML), objects: []string{
			"ServiceCIDR extra [10.112.0.0/16]", "ServiceCIDR old [10.112.0.0/16]",
		}},
		{
			name: "lists of Nodes and ServiceCIDRs",
			data: "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: node-2}\n- metadata: {name: node-1}\n---\n" +
				"apiVersion: networking.k8s.io/v1beta1\nkind: ServiceCIDRList\nitems: [{metadata: {name: old}, spec: {cidrs: [10.112.0.0/16]}}]\n---\n" +
				"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDRList\nitems: [{metadata: {name: extra}, spec: {cidrs: [10.112.0.0/16]}}]",
			objects: []string{"Node node-1 [] [] zone= deleting=false,false", "ServiceCIDR extra [10.112.0.0/16]", "ServiceCIDR old [10.112.0.0/16]"},
		},
		{
			name: "a ServiceCIDR without a range that can be used", data: strings.ReplaceAll(cidrYAML, "/16", "/33"), unusable: "ServiceCIDR extra",
			problems: []string{`document 1 (line 1): ServiceCIDR extra: spec.cidrs[0]: "10.112.0.0/33" is not a range of addresses`},
		},
		{name: "unknown fields", data: webYAML + "  colour: red\n", objects: []string{webLine}},
		{
			name:    "not an object",
			data:    "hello\n---\n- a\n---\nkind: Service\n---\n" + webYAML,
			objects: []string{webLine}, unnamed: true,
			problems: []string{
				"document 1 (line 1): is not a Kubernetes object: json: cannot unmarshal string into Go value of type v1.TypeMeta",
				"document 2 (line 3): is not a Kubernetes object: json: cannot unmarshal array into Go value of type v1.TypeMeta",
				"document 3 (line 5): is not a Kubernetes object: apiVersion or kind is missing",
			},
		},
		{
			name: "almost an object",
			data: "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n---\napiVersion: v1\nkind: service\n---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List}]\n---\n" +
				"apiVersion: networking.k8s.io/v1alpha1\nkind: ServiceCIDR\n",
			unnamed: true,
			problems: []string{
				"document 1 (line 1): is apiVersion discovery.k8s.io/v1beta1, kind EndpointSlice: only apiVersion discovery.k8s.io/v1, kind EndpointSlice is known",
				"document 2 (line 4): is apiVersion v1, kind service: only apiVersion v1, kind Service is known",
				"document 3 (line 7): items[0]: is a list inside of a list: put its items into the outer one",
				"document 4 (line 11): is apiVersion networking.k8s.io/v1alpha1, kind ServiceCIDR: only apiVersion networking.k8s.io/v1, kind ServiceCIDR is known",
			},
		},
		{
			name: "an object without a name", data: webYAML + "---\napiVersion: v1\nkind: Service\nmetadata: {labels: {}}\n",
			objects: []string{webLine}, unnamed: true,
			problems: []string{"document 2 (line 8): Service: metadata.name: is missing"},
		},
		{
			name: "a wrong type", data: webYAML + "---\n" + strings.ReplaceAll(webSliceYAML, "port: 8080", "port: http"),
			objects: []string{webLine}, unusable: "EndpointSlice default/web-1",
			problems: []string{"document 2 (line 8): EndpointSlice default/web-1: json: cannot unmarshal string into Go struct field EndpointPort.ports.port of type int32"},
		},
		{
			name:     "a wrong type before the name",
			data:     "apiVersion: v1\nkind: Service\nmetadata: {creationTimestamp: yesterday, name: web}\n",
			unusable: "Service default/web",
			problems: []string{`document 1 (line 1): Service default/web: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"`},
		},
		{
			name: "a field twice, in JSON", data: `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "name": "web"}}`,
			unusable: "Service default/web",
			problems: []string{`document 1 (line 1): Service default/web: duplicate field "metadata.name"`},
		},
		{
			name: "a bad part in a list",
			data: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: web}\n" +
				"  spec: {clusterIP: 10.96.0.10, ports: [{port: 80}, {name: b, port: 70000}]}\n",
			objects:  []string{webLine},
			problems: []string{"document 1 (line 1): items[0]: Service default/web: spec.ports[1].port: 70000 is not in 1..65535"},
		},
		{
			name: "nothing usable", data: strings.ReplaceAll(webYAML, "10.96.0.10", "10.96.0.300"),
			unusable: "Service default/web",
			problems: []string{`document 1 (line 1): Service default/web: spec.clusterIPs[0]: "10.96.0.300" is not an IP address`},
		},
		{
			name: "the same object twice", data: webYAML + "---\n" + strings.ReplaceAll(webYAML, "80", "81"), objects: []string{webLine},
			problems: []string{"document 2 (line 8): Service default/web: is in this file before, and that is what is used: remove one of the two"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := parseManifest([]byte(test.data), "node-1")
			if err != nil {
				t.Fatal(err)
			}
			var errs []error
			for _, p := range m.problems {
				errs = append(errs, p.Err)
			}
			checkErrors(t, errors.Join(errs...), test.problems)
			if diff := cmp.Diff(test.objects, describeObjects(m.objects)); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
			var unusable []string
			for key := range m.unusable {
				unusable = append(unusable, key.String())
			}
			if strings.Join(unusable, " ") != test.unusable || m.unnamed != test.unnamed {
				t.Errorf("unusable %q, unnamed %t", unusable, m.unnamed)
			}
		})
	}
}

func TestParseBrokenManifest(t *testing.T) {
	tests := map[string]struct{ data, err string }{
		"YAML": {
			webYAML + "---\na: b\n  c: [\n",
			"document 2 (line 8): yaml: line 2: mapping values are not allowed in this context",
		},
		"a field twice": {
			webYAML + "kind: Service\n",
			`document 1 (line 1): yaml: unmarshal errors:` + "\n" + `  line 7: key "kind" already set in map`,
		},
		"JSON":           {"{\"a\": 1,\n\"b\": 2\n\"c\": 3}", "document 1 (line 1): json: line 3: invalid character '\"' after object key:value pair"},
		"unfinished":     {"{\"a\": 1,\n\"b\": ", "document 1 (line 1): json: line 2: unexpected EOF"},
		"the separator":  {webYAML + "--- oops\n", "document 1: invalid Yaml document separator: oops"},
		"binary content": {"\x00\x01", "document 1 (line 1): yaml: control characters are not allowed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := parseManifest([]byte(test.data), "")
			if err == nil || err.Error() != test.err {
				t.Errorf("got %+v, error %v\nwant %s", m, err, test.err)
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "manifests", "kubectl-get.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add([]byte(webYAML + "---\n" + webSliceYAML))
	f.Add([]byte(strings.ReplaceAll(nodeYAML, "node-1", "worker") + "---\n" + cidrYAML))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}]}{}`))
	f.Add([]byte("--- # comment\r\nkind: [\r\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data, "worker")
		if err != nil {
			if m != nil {
				t.Error("a manifest and an error")
			}
			return
		}
		for key, o := range m.objects {
			switch {
			case o.service != nil:
				checkService(t, o.service)
			case o.slice != nil:
				checkSlice(t, o.slice)
			case o.node != nil:
				checkUsableNode(t, o.node)
			case o.serviceCIDR != nil:
				checkRanges(t, o.serviceCIDR.cidrs)
			}
			hasNamespace := key.kind == kindService || key.kind == kindSlice
			if key.name.Name == "" || hasNamespace != (key.name.Namespace != "") || m.unusable[key] || key.kind == kindNode && o.node == nil {
				t.Errorf("object %s", key)
			}
		}
		if (len(m.unusable) > 0 || m.unnamed) && len(m.problems) == 0 {
			t.Error("something is left out without a problem")
		}
	})
}

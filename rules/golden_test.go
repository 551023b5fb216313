package rules_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// update is set by `go test ./rules -run TestGolden -update`.
var update = flag.Bool("update", false, "rewrite the expected text in testdata/*.txtar")

// The files of a golden test.
const (
	inputFile  = "services"
	outputFile = "ruleset.nft"
)

// TestGolden compiles what testdata/*.txtar describe in the file "services" and
// compares the ruleset's text with the file "ruleset.nft"; then nft has to accept
// that text. See readServices for the input.
func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := readServices(t, archiveFile(archive, inputFile)).WriteText(&text); err != nil {
				t.Fatal(err)
			}
			if *update {
				setArchiveFile(archive, outputFile, text.String())
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(archiveFile(archive, outputFile), text.String()); diff != "" {
				t.Errorf("the text (+) is not the expected (-), see -update:\n%s", diff)
			}
			nstest.New(t).MustNFT(t, text.String(), "-c", "-f", "-")
		})
	}
}

func archiveFile(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func setArchiveFile(a *txtar.Archive, name, data string) {
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(data)
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(data)})
}

// readServices compiles service ports from lines of the form
//
//	namespace/name:port protocol FRONTEND... -> ENDPOINT...
//
// where a frontend is address:port, after external=, lb= or nodeport= if it is no
// ClusterIP, or a word: affinity=DURATION, from=RANGE,... restricts the sources of load balancers, internal-local and external-local are the traffic policies, elsewhere says
// that other endpoints serve. An endpoint is address:port, followed by *weight if
// that is not 1, and by @local if it is on this node; such an endpoint serves under
// both policies, with @only-local under policy Local only. A line that names a service port again says what
// it changed to. "families ipv4" restricts the families, "cluster-cidrs PREFIX..."
// sets the ranges of pods, and so on; "node ipv4 ADDRESS... PREFIX..." says on which
// addresses NodePorts are open, and the ServiceCIDRs. Empty lines and those that start with # say nothing.
func readServices(t *testing.T, text string) *rules.Ruleset {
	t.Helper()
	var cfg rules.Config
	var nodes []*rules.Compiled
	var order []rules.ServicePortKey
	compiled := map[rules.ServicePortKey]*rules.Compiled{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if fields := strings.Fields(line); !strings.Contains(line, "->") {
			var err error
			if fields[0] == "node" {
				nodes, err = appendNode(nodes, fields[1:])
			} else {
				err = setOption(&cfg, fields[0], fields[1:])
			}
			if err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			continue
		}
		sp, err := parseServicePort(line)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if compiled[sp.ServicePortKey] == nil {
			order = append(order, sp.ServicePortKey)
		}
		if compiled[sp.ServicePortKey], err = rules.Compile(cfg, sp, compiled[sp.ServicePortKey]); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
	}
	var services []*rules.Compiled
	for _, key := range order {
		services = append(services, compiled[key])
	}
	return rules.NewRuleset(cfg, append(services, nodes...))
}

func appendNode(nodes []*rules.Compiled, fields []string) ([]*rules.Compiled, error) {
	node := rules.Node{Family: map[string]rules.Family{"ipv4": rules.IPv4, "ipv6": rules.IPv6}[fields[0]]}
	for _, s := range fields[1:] {
		if p, err := netip.ParsePrefix(s); err == nil {
			node.ServiceCIDRs = append(node.ServiceCIDRs, p)
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("read a node: %w", err)
		}
		node.NodePortIPs = append(node.NodePortIPs, a)
	}
	c, err := rules.CompileNode(node)
	if err != nil {
		return nil, fmt.Errorf("compile a node: %w", err)
	}
	return append(nodes, c), nil
}

func setOption(cfg *rules.Config, name string, values []string) error {
	for _, v := range values {
		switch {
		case name == "families" && v == "ipv4":
			cfg.Families = append(cfg.Families, rules.IPv4)
		case name == "families" && v == "ipv6":
			cfg.Families = append(cfg.Families, rules.IPv6)
		case name == "cluster-cidrs":
			p, err := netip.ParsePrefix(v)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			cfg.ClusterCIDRs = append(cfg.ClusterCIDRs, p)
		case name == "nodeports-everywhere":
			cfg.NodePortsEverywhere = append(cfg.NodePortsEverywhere, map[string]rules.Family{"ipv4": rules.IPv4, "ipv6": rules.IPv6}[v])
		case name == "pod-interface":
			cfg.PodInterface = v
		case name == "pod-interface-prefix":
			cfg.PodInterfacePrefix = v
		default:
			return fmt.Errorf("unknown option %s %s", name, v)
		}
	}
	return nil
}

// parseServicePort reads one line; its family is that of the first frontend.
func parseServicePort(line string) (rules.ServicePort, error) {
	var sp rules.ServicePort
	left, right, _ := strings.Cut(line, "->")
	fields := strings.Fields(left)
	if len(fields) < 3 {
		return sp, fmt.Errorf("%q is not a name, a protocol and frontends", left)
	}
	name, port, _ := strings.Cut(fields[0], ":")
	sp.Namespace, sp.Name, _ = strings.Cut(name, "/")
	sp.Port = port
	sp.Protocol = map[string]rules.Protocol{"tcp": rules.TCP, "udp": rules.UDP, "sctp": rules.SCTP}[fields[1]]
	for _, s := range fields[2:] {
		if err := parseFrontend(&sp, s); err != nil {
			return sp, err
		}
	}
	sp.Family = rules.FamilyOf(sp.Frontends[len(sp.Frontends)-1].Addr.Addr())
	for _, s := range strings.Fields(right) {
		e, err := parseEndpoint(s)
		if err != nil {
			return sp, err
		}
		if !strings.HasSuffix(s, "@only-local") {
			sp.Endpoints = append(sp.Endpoints, e)
		}
		if e.Local && (sp.InternalLocal || sp.ExternalLocal) {
			sp.LocalEndpoints = append(sp.LocalEndpoints, e)
		}
	}
	return sp, nil
}

// parseFrontend reads a frontend or a word about the service port.
func parseFrontend(sp *rules.ServicePort, s string) error {
	switch s {
	case "internal-local":
		sp.InternalLocal = true
		return nil
	case "external-local":
		sp.ExternalLocal = true
		return nil
	case "elsewhere":
		sp.Served = true
		return nil
	}
	if affinity, ok := strings.CutPrefix(s, "affinity="); ok {
		var err error
		if sp.Affinity, err = time.ParseDuration(affinity); err != nil {
			return fmt.Errorf("read the affinity: %w", err)
		}
		return nil
	}
	if ranges, ok := strings.CutPrefix(s, "from="); ok {
		sp.Restricted = true
		for _, r := range strings.FieldsFunc(ranges, func(c rune) bool { return c == ',' }) {
			sp.SourceRanges = append(sp.SourceRanges, netip.MustParsePrefix(r))
		}
		return nil
	}
	kind := rules.ClusterIP
	if k, addr, ok := strings.Cut(s, "="); ok {
		kind, s = map[string]rules.FrontendKind{"external": rules.ExternalIP, "lb": rules.LoadBalancerIP, "nodeport": rules.NodePort}[k], addr
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return fmt.Errorf("read a frontend: %w", err)
	}
	sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: kind, Addr: a})
	return nil
}

func parseEndpoint(s string) (rules.Endpoint, error) {
	e := rules.Endpoint{Weight: 1}
	s, e.Local = strings.CutSuffix(strings.Replace(s, "@only-local", "@local", 1), "@local")
	addr, weight, weighted := strings.Cut(s, "*")
	if weighted {
		n, err := strconv.ParseUint(weight, 10, 16)
		if err != nil {
			return e, fmt.Errorf("read the weight of an endpoint: %w", err)
		}
		e.Weight = uint16(n)
	}
	var err error
	if e.Addr, err = netip.ParseAddrPort(addr); err != nil {
		return e, fmt.Errorf("read an endpoint: %w", err)
	}
	return e, nil
}

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// equalsFresh checks that node1 holds, after some time, what a computation from nothing
// makes of what the API server has.
func (c *cluster) equalsFresh(t *testing.T, within time.Duration) {
	t.Helper()
	var diff string
	for deadline := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		want, err := c.fresh(t)
		if err != nil {
			t.Fatal(err)
		}
		got, err := listing(t, c.network.Host(testnet.Node1).Namespace)
		if err != nil {
			t.Fatal(err)
		}
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node1 (+) does not hold what is computed from nothing (-):\n%s", diff)
		}
	}
}

// fresh computes the rules of node1 from nothing.
func (c *cluster) fresh(t *testing.T) (rules []string, err error) {
	t.Helper()
	node := c.network.Host(testnet.Node1).Namespace
	text, err := node.Command(t.Context(), "", c.proxyPath, "dump", "--kubeconfig", c.control.Kubeconfig(),
		"--hostname-override", testnet.Node1, "--cluster-cidr", clusterCIDRs)
	if err != nil {
		return nil, fmt.Errorf("compute the rules: %w", err)
	}
	ns, err := namespace.New("fresh")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	if _, err := ns.Command(t.Context(), text, "nft", "-f", "-"); err != nil {
		return nil, fmt.Errorf("load the rules: %w", err)
	}
	return listing(t, ns)
}

// listing returns what nft lists in a namespace, one line an object or element, without
// what differs between rules that were computed from nothing and rules that have changed
// step by step: handles and order, slots of endpoints, and how many slots there are.
func listing(t *testing.T, ns *namespace.Namespace) ([]string, error) {
	t.Helper()
	text, err := ns.Command(t.Context(), "", "nft", "-j", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	var list struct {
		Objects []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read a listing: %w", err)
	}
	var lines []string
	for _, object := range list.Objects {
		for kind, o := range object {
			if kind == "metainfo" || capacityChain(o["chain"]) || kind == "chain" && capacityChain(o["name"]) {
				continue
			}
			delete(o, "handle")
			delete(o, "type") // of sets: depends on how they were declared
			name := fmt.Sprint(kind, " ", o["family"], " ", o["name"], " ")
			elements, _ := o["elem"].([]any)
			delete(o, "elem")
			lines = append(lines, asJSON(name, o))
			for _, e := range elements {
				lines = append(lines, withoutSlots(name, asJSON(name, e)))
			}
		}
	}
	slices.Sort(lines)
	return lines, nil
}

func asJSON(prefix string, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return prefix + string(text)
}

// capacityChain reports whether a chain draws from so many slots, once or until it hits.
func capacityChain(name any) bool {
	text, _ := name.(string)
	return regexp.MustCompile(`^(draw-)?random-\d+$`).MatchString(text)
}

// withoutSlots takes the slot out of an element of a map of endpoints, and how many
// slots there are out of one that leads there.
func withoutSlots(set, element string) string {
	if strings.HasSuffix(set, "endpoints ") {
		element = regexp.MustCompile(`("concat":\[[^\]]*),\d+\]`).ReplaceAllString(element, "$1]")
	}
	return regexp.MustCompile(`"random-\d+"`).ReplaceAllString(element, `"random"`)
}

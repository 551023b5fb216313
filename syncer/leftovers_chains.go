package syncer

import (
	"slices"
	"strings"
)

// xtTable is a table of iptables, as far as leftovers are concerned.
type xtTable struct {
	family string // "ip" or "ip6"
	name   string
	chains []xtChain
}

// xtChain is a chain of iptables.
type xtChain struct {
	name    string
	builtin bool // called by the kernel, not by rules
	drops   bool // its policy is DROP
	rules   []xtRule
}

// xtRule is a rule of iptables.
type xtRule struct {
	chain  string
	target string // the chain that it jumps or goes to, empty for other rules
	line   string // as iptables-save printed it
	handle uint64 // as the kernel calls it
}

// xtPlan is what is to be deleted of a table.
type xtPlan struct {
	family, table string
	// chains are those of kube-proxy that no one else refers to.
	chains []string
	// jumps are kube-proxy's rules in built-in chains.
	jumps []xtRule
	// kept are the chains of kube-proxy that have to stay.
	kept []string
}

func (p xtPlan) empty() bool { return len(p.chains) == 0 && len(p.jumps) == 0 }

// forwardChain accepts what kube-proxy has marked, and established connections.
const forwardChain = "KUBE-FORWARD"

// plan returns what kube-proxy left in the table.
//
// A chain to which a rule of somebody else leads, directly or by way of other chains, is
// not to be deleted: the portmap plugin of CNI, for example, may use KUBE-MARK-MASQ.
// And where the policy of FORWARD is DROP, as Docker sets it, KUBE-FORWARD stays with
// the jump to it: no rule of nftables can accept what iptables drops, and connections
// that are established would end.
func (t xtTable) plan() xtPlan {
	p := xtPlan{family: t.family, table: t.name}
	chains := map[string]xtChain{}
	var foreign []string // where rules of others lead
	for _, c := range t.chains {
		if !c.builtin && isKubeProxyChain(c.name) {
			chains[c.name] = c
			continue
		}
		for _, r := range c.rules {
			needed := c.drops && r.target == forwardChain
			if c.builtin && isKubeProxyEntry(r.target) && !needed {
				p.jumps = append(p.jumps, r)
			} else {
				foreign = append(foreign, r.target)
			}
		}
	}
	kept := map[string]bool{}
	for len(foreign) > 0 {
		name := foreign[len(foreign)-1]
		foreign = foreign[:len(foreign)-1]
		c, ours := chains[name]
		if !ours || kept[name] {
			continue
		}
		kept[name] = true
		for _, r := range c.rules {
			foreign = append(foreign, r.target)
		}
	}
	for name := range chains {
		if kept[name] {
			p.kept = append(p.kept, name)
		} else {
			p.chains = append(p.chains, name)
		}
	}
	slices.Sort(p.chains)
	slices.Sort(p.kept)
	return p
}

// isKubeProxyEntry reports whether a chain is one to which kube-proxy jumps from
// built-in chains, in its mode iptables or ipvs.
func isKubeProxyEntry(chain string) bool {
	switch chain {
	case "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", forwardChain,
		"KUBE-PROXY-FIREWALL", "KUBE-NODE-PORT", "KUBE-IPVS-FILTER", "KUBE-IPVS-OUT-FILTER":
		return true
	default:
		return false
	}
}

// isKubeProxyChain reports whether a chain is kube-proxy's, and not the kubelet's:
// KUBE-FIREWALL, which keeps packets to 127.0.0.0/8 from outside away, KUBE-MARK-DROP,
// KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY are.
func isKubeProxyChain(chain string) bool {
	if isKubeProxyEntry(chain) {
		return true
	}
	switch chain {
	case "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY", "KUBE-LOAD-BALANCER", "KUBE-SOURCE-RANGES-FIREWALL":
		return true
	}
	// Of a service port or an endpoint. XLB is EXT of before Kubernetes 1.24.
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-"} {
		if hash, ok := strings.CutPrefix(chain, prefix); ok {
			return isKubeProxyHash(hash)
		}
	}
	return false
}

// isKubeProxyHash reports whether a text is the beginning of a base32 hash as
// kube-proxy has it in names.
func isKubeProxyHash(text string) bool {
	const length = 16
	return len(text) == length && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

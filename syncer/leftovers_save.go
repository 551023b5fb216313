package syncer

import "strings"

// parseSave reads what iptables-save prints of a family, without counters. Lines that
// it does not know are nobody's leftovers.
func parseSave(family, text string) []xtTable {
	var tables []xtTable
	var index map[string]int // chains of the last table by name; nil between tables
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch fields := words(line); {
		case strings.HasPrefix(line, "*"):
			tables = append(tables, xtTable{family: family, name: line[1:]})
			index = map[string]int{}
		case line == "COMMIT":
			index = nil
		case index == nil || len(fields) < 2:
		case strings.HasPrefix(line, ":"):
			// :PREROUTING ACCEPT [0:0], or :KUBE-SERVICES - [0:0]
			name, policy := fields[0][1:], fields[1]
			if _, again := index[name]; again {
				continue
			}
			t := &tables[len(tables)-1]
			index[name] = len(t.chains)
			t.chains = append(t.chains, xtChain{name: name, builtin: policy != "-", drops: policy == "DROP"})
		case fields[0] == "-A":
			// -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
			if i, ok := index[fields[1]]; ok {
				c := &tables[len(tables)-1].chains[i]
				c.rules = append(c.rules, xtRule{chain: c.name, target: targetOf(fields[2:]), line: line})
			}
		}
	}
	return tables
}

// words splits a line. No name of a chain has a space in it.
func words(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' })
}

// targetOf returns the chain to which a rule leads, given the words after its chain. A
// rule that leads to a chain ends with that: there are no options after it. Only in the
// last place is "-j" no part of a comment, since the comment's quote would follow.
func targetOf(rule []string) string {
	n := len(rule)
	if n < 2 || rule[n-2] != "-j" && rule[n-2] != "-g" {
		return ""
	}
	return rule[n-1]
}

// restoreText returns the input for `iptables-restore --noflush` that carries out plans
// of one family, empty if there is nothing to do. For a chain's line, that empties a
// chain; other chains and tables it leaves alone.
func restoreText(plans []xtPlan) string {
	var b strings.Builder
	for _, p := range plans {
		if p.empty() {
			continue
		}
		b.WriteString("*" + p.table + "\n")
		for _, chain := range p.chains {
			b.WriteString(":" + chain + " - [0:0]\n")
		}
		for _, jump := range p.jumps {
			b.WriteString("-D" + strings.TrimPrefix(jump.line, "-A") + "\n")
		}
		for _, chain := range p.chains {
			b.WriteString("-X " + chain + "\n")
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

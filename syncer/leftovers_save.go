package syncer

import "strings"

// parseSave reads what iptables-save prints of a family, without counters. Lines that
// it does not know are nobody's leftovers.
func parseSave(family, text string) []xtTable {
	var tables []xtTable
	var table *xtTable // where lines belong, nil between tables
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			tables = append(tables, xtTable{family: family, name: line[1:]})
			table = &tables[len(tables)-1]
		case line == "COMMIT":
			table = nil
		case table == nil:
		case strings.HasPrefix(line, ":"):
			// :PREROUTING ACCEPT [0:0], or :KUBE-SERVICES - [0:0]
			if fields := words(line[1:]); len(fields) >= 2 {
				table.chains = append(table.chains, xtChain{name: fields[0], builtin: fields[1] != "-", drops: fields[1] == "DROP"})
			}
		default:
			table.addRule(line)
		}
	}
	return tables
}

// addRule adds the rule of a line to its chain.
func (t *xtTable) addRule(line string) {
	fields := words(line)
	const least = 2 // -A CHAIN
	if len(fields) < least || fields[0] != "-A" {
		return
	}
	for i := range t.chains {
		if t.chains[i].name == fields[1] {
			t.chains[i].rules = append(t.chains[i].rules, xtRule{chain: fields[1], target: targetOf(fields[least:]), line: line})
			return
		}
	}
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

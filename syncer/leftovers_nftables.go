package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/nftproxy/nftproxy/rules"
)

// tables looks for the tables with a name, of all families. They go in one commit.
func (s *sweep) tables(ctx context.Context, name string) error {
	conn, err := openTables(ctx)
	if err != nil {
		return err
	}
	var found []string
	for _, f := range rules.Families() {
		table := rules.EncodeTable(f)
		table.Name = name
		all, err := conn.ListTablesOfFamily(table.Family)
		if err != nil {
			return kernelError("list tables", err)
		}
		if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == name }) {
			continue
		}
		found = append(found, fmt.Sprintf("table %s %s", f.Keyword(), name))
		// To add one first makes sure that it is there: somebody else may be quicker.
		conn.AddTable(table)
		conn.DelTable(table)
	}
	if s.remove && len(found) > 0 {
		if err := conn.Flush(); err != nil {
			return kernelError("delete tables", err)
		}
	}
	s.left.Found = append(s.left.Found, found...)
	return nil
}

// openTables returns a connection with a socket for each request.
func openTables(ctx context.Context) (*nftables.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nothing was done: %w", err)
	}
	conn, err := nftables.New()
	if err != nil {
		return nil, openError(err)
	}
	return conn, nil
}

// iptablesChains looks for chains that iptables-nft made, without iptables.
func (s *sweep) iptablesChains(ctx context.Context, f rules.Family) error {
	conn, err := openTables(ctx)
	if err != nil {
		return err
	}
	tables, err := readXTTables(conn, f)
	if err != nil {
		return kernelError("list the chains of iptables-nft", err)
	}
	var errs []error
	for _, table := range tables {
		plan := table.plan()
		if s.remove {
			if err := deletePlan(conn, f, plan); err != nil {
				errs = append(errs, kernelError("delete the chains of kube-proxy in table "+f.Keyword()+" "+table.name, err))
				continue
			}
		}
		s.plan(plan)
	}
	return errors.Join(errs...)
}

// readXTTables reads the tables of iptables-nft in which there is a chain of
// kube-proxy.
func readXTTables(conn *nftables.Conn, f rules.Family) ([]xtTable, error) {
	chains, err := conn.ListChainsOfTableFamily(rules.EncodeTable(f).Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	var tables []xtTable
	for _, name := range []string{"raw", "mangle", "nat", "filter", "security"} {
		table := xtTable{family: f.Keyword(), name: name}
		chainsOf := slices.DeleteFunc(slices.Clone(chains), func(c *nftables.Chain) bool { return c.Table.Name != name })
		if !slices.ContainsFunc(chainsOf, func(c *nftables.Chain) bool { return isKubeProxyChain(c.Name) }) {
			continue
		}
		for _, c := range chainsOf {
			list, err := conn.GetRules(c.Table, c)
			if err != nil {
				return nil, fmt.Errorf("list the rules of chain %s: %w", c.Name, err)
			}
			chain := xtChain{
				name: c.Name, builtin: c.Hooknum != nil,
				drops: c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop,
			}
			for _, r := range list {
				chain.rules = append(chain.rules, xtRule{chain: c.Name, target: targetOfExprs(r.Exprs), handle: r.Handle})
			}
			table.chains = append(table.chains, chain)
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// targetOfExprs returns the chain to which a rule leads, empty if to none.
func targetOfExprs(exprs []expr.Any) string {
	for _, e := range exprs {
		if v, ok := e.(*expr.Verdict); ok && (v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto) {
			return v.Chain
		}
	}
	return ""
}

// deletePlan carries out a plan. Once the jumps are gone, which is one commit, no
// packet comes to the chains, so these may go in many.
func deletePlan(conn *nftables.Conn, f rules.Family, p xtPlan) error {
	table := rules.EncodeTable(f)
	table.Name = p.table
	for _, jump := range p.jumps {
		rule := &nftables.Rule{Table: table, Chain: &nftables.Chain{Table: table, Name: jump.chain}, Handle: jump.handle}
		if err := conn.DelRule(rule); err != nil {
			return fmt.Errorf("rule %d of chain %s: %w", jump.handle, jump.chain, err)
		}
	}
	if err := conn.Flush(); err != nil {
		return err //nolint:wrapcheck // the caller says what was tried
	}
	const atOnce = 50 // the answers fit into the buffer of any socket
	for _, do := range []func(*nftables.Chain){conn.FlushChain, conn.DelChain} {
		for names := range slices.Chunk(p.chains, atOnce) {
			for _, name := range names {
				do(&nftables.Chain{Table: table, Name: name})
			}
			if err := conn.Flush(); err != nil {
				return err //nolint:wrapcheck // the caller says what was tried
			}
		}
	}
	return nil
}

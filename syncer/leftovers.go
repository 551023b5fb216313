package syncer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/rules"
)

// kubeProxyTable is the name of kube-proxy's tables in its mode nftables.
const kubeProxyTable = "kube-proxy"

// Leftovers are what a program that has ended left in the kernel. Each text names one
// kind of it, for people.
type Leftovers struct {
	// Found is what is to be removed, or was.
	Found []string
	// Kept is what has to stay for now: connections use it, or rules of others do.
	Kept []string
	// Failed is the families of which something could not be looked for, or removed.
	Failed []rules.Family
}

// None reports whether nothing is left.
func (l Leftovers) None() bool { return len(l.Found) == 0 && len(l.Kept) == 0 }

// String returns all of it in one line, empty if there is nothing.
func (l Leftovers) String() string {
	text := strings.Join(l.Found, ", ")
	if len(l.Kept) == 0 {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + "kept: " + strings.Join(l.Kept, ", ")
}

// RemoveTables deletes the tables of nftproxy of all families in one commit, in the
// network namespace of the calling thread. What does not exist is no error.
func RemoveTables(ctx context.Context) (Leftovers, error) {
	s := sweep{remove: true}
	err := s.tables(ctx, rules.TableName)
	if err != nil {
		s.left.Failed = rules.Families()
	}
	return s.result(), err
}

// FindLeftovers looks for what kube-proxy leaves in the kernel when it ends, whatever
// its mode was, in the network namespace of the calling thread. With an error some of
// it may be missing.
func FindLeftovers(ctx context.Context) (Leftovers, error) {
	return (&sweep{}).kubeProxy(ctx)
}

// RemoveLeftovers removes what FindLeftovers finds, and nothing else. Rules for new
// connections must be in force before: those of kube-proxy go one kind after the
// other, each kind in one commit for each family. With drain, ipvs servers stay as long
// as there are connections by way of them; all other connections go on in any case,
// since their translation is conntrack's. What could not be removed is an error, and
// the rest is removed nevertheless. It may be repeated.
func RemoveLeftovers(ctx context.Context, drain bool) (Leftovers, error) {
	return (&sweep{remove: true, drain: drain}).kubeProxy(ctx)
}

// sweep is one search for leftovers.
type sweep struct {
	remove bool // what is found
	drain  bool // keep what connections use
	left   Leftovers
}

func (s *sweep) found(format string, args ...any) {
	s.left.Found = append(s.left.Found, fmt.Sprintf(format, args...))
}

func (s *sweep) kept(format string, args ...any) {
	s.left.Kept = append(s.left.Kept, fmt.Sprintf(format, args...))
}

// result returns what there was. Something that can be seen in two ways, as the rules
// of iptables-nft, is there once.
func (s *sweep) result() Leftovers {
	return Leftovers{Found: unique(s.left.Found), Kept: unique(s.left.Kept), Failed: unique(s.left.Failed)}
}

// unique returns each value once, where it comes first.
func unique[T comparable](values []T) []T {
	var list []T
	for _, v := range values {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// part is one kind of leftovers, of some families.
type part struct {
	what     string
	families []rules.Family
	do       func(context.Context) error
}

// parts returns everything that is kube-proxy's. The chains of iptables-nft are looked
// for once more without iptables: it may not be installed, and does not read a table in
// which there are rules that it cannot have made.
func (s *sweep) parts() []part {
	all := rules.Families()
	parts := []part{{"tables of nftables", all, func(ctx context.Context) error { return s.tables(ctx, kubeProxyTable) }}}
	for _, f := range all {
		parts = append(parts, part{"chains of iptables", []rules.Family{f}, func(ctx context.Context) error { return s.iptables(ctx, f) }})
	}
	for _, f := range all {
		parts = append(parts, part{"chains of iptables in nftables", []rules.Family{f}, func(ctx context.Context) error { return s.iptablesChains(ctx, f) }})
	}
	return append(parts, part{"ipvs", all, s.ipvs})
}

// kubeProxy looks for everything that is kube-proxy's.
func (s *sweep) kubeProxy(ctx context.Context) (Leftovers, error) {
	var errs []error
	for _, part := range s.parts() {
		if err := part.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("leftovers of kube-proxy, %s: %w", part.what, err))
			s.left.Failed = append(s.left.Failed, part.families...)
		}
	}
	return s.result(), errors.Join(errs...)
}

// plan notes what is in a plan.
func (s *sweep) plan(p xtPlan) {
	if !p.empty() {
		s.found("iptables: %s %s, %d chains and %d jumps to them", p.family, p.table, len(p.chains), len(p.jumps))
	}
	for _, chain := range p.kept {
		reason := "which rules of others use"
		if chain == forwardChain {
			reason = "without which the policy DROP would end connections"
		}
		s.kept("iptables: %s %s, chain %s, %s", p.family, p.table, chain, reason)
	}
}

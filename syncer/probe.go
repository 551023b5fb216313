package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/rules"
)

// Probe returns nil if the kernel can do everything that the ruleset needs. It has
// the kernel examine a throw-away table with every kind of rule and element, which
// is never committed. An error says what is missing.
func (k *Netlink) Probe(ctx context.Context, cfg rules.Config) error {
	cfg = cfg.WithDefaults()
	probe, err := newNetlink(rules.TableName+"-probe", k.netns, k.sendBuffer, k.receiveBuffer)
	if err != nil {
		return err
	}
	defer func() { _ = probe.Close() }() // only its socket, nothing depends on that
	batch, err := probeBatch(cfg)
	if err != nil {
		return err
	}
	err = probe.Check(ctx, batch)
	if err == nil {
		return nil
	}
	cause, err := causeOf(err), errors.Unwrap(err)
	if cause == Refused {
		if missing := probe.missing(ctx, cfg); missing != "" {
			err = fmt.Errorf("it cannot do %q: load the modules nf_tables, nft_chain_nat, nft_ct, nft_nat, nft_masq, nft_reject and nft_numgen,"+
				" or use a kernel that has them: %w", missing, err)
		}
	}
	return &Error{Op: "probe the kernel", Cause: cause, Err: err}
}

// probeBatch makes the skeleton, a random chain and a service port.
func probeBatch(cfg rules.Config) (*Batch, error) {
	b := resetBatch(cfg, nil)
	for _, f := range cfg.Families {
		frontend, endpoint := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")
		if f == rules.IPv6 {
			frontend, endpoint = netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:1")
		}
		compiled, err := rules.Compile(cfg, rules.ServicePort{
			ServicePortKey: rules.ServicePortKey{ServicePortName: rules.ServicePortName{Protocol: rules.TCP}, Family: f},
			Frontends:      []rules.Frontend{{Kind: rules.ClusterIP, Addr: frontend}},
			Endpoints:      []rules.Endpoint{{Addr: endpoint, Weight: 1, Local: true}},
		}, nil)
		if err != nil {
			return nil, fmt.Errorf("probe the kernel: %w", err)
		}
		var p planner
		b = p.plan(newMirror(), b, []change{{compiled.ServicePortKey, compiled}}).batch
	}
	return b, nil
}

// missing returns the first rule, in nft syntax, that the kernel refuses in a chain
// of its own.
func (k *Netlink) missing(ctx context.Context, cfg rules.Config) string {
	for _, f := range cfg.Families {
		for _, c := range append(rules.Skeleton(cfg, f), rules.RandomChain(2)) {
			b := &Batch{}
			b.Add(Op{Verb: AddTable, Family: f})
			for _, set := range rules.Sets() {
				b.Add(Op{Verb: AddSet, Family: f, Set: set.ID})
			}
			for _, other := range rules.Skeleton(cfg, f) {
				if other.Base == nil && other.Name != c.Name {
					addChain(b, f, other)
				}
			}
			addChain(b, f, c)
			if k.Check(ctx, b) != nil {
				return "chain " + f.Keyword() + " " + c.Name
			}
			for _, rule := range c.Rules {
				b.Add(Op{Verb: AddRule, Family: f, Name: c.Name, Rule: rule})
				if k.Check(ctx, b) != nil {
					return string(rule.AppendText(nil, f))
				}
			}
		}
	}
	return ""
}

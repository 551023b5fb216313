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
	return examine(ctx, cfg, probe)
}

// prober is what a probe needs of a kernel.
type prober interface {
	State(ctx context.Context, families []rules.Family) (State, error)
	Check(ctx context.Context, b *Batch) error
}

// examine returns nil if the kernel can do everything, else an error that says what
// it cannot do.
func examine(ctx context.Context, cfg rules.Config, kernel prober) error {
	const op = "probe the kernel"
	// A kernel without nf_tables answers a batch once, whatever is in it, and a
	// listing as any other request.
	if _, err := kernel.State(ctx, cfg.Families); err != nil {
		cause, err := causeOf(err), errors.Unwrap(err)
		if cause == Refused {
			err = noNFTables(err)
		}
		return &Error{Op: op, Cause: cause, Err: err}
	}
	batch, err := probeBatch(cfg)
	if err != nil {
		return err
	}
	err = kernel.Check(ctx, batch)
	if err == nil {
		return nil
	}
	cause, err := causeOf(err), errors.Unwrap(err)
	if cause == Refused {
		if what := missing(ctx, cfg, kernel); what != "" {
			err = fmt.Errorf("it cannot do %q: load the modules nf_tables, nft_chain_nat, nft_ct, nft_fib, nft_nat, nft_masq, nft_reject"+
				" and nft_numgen, or use a kernel that has them: %w", what, err)
		}
	}
	return &Error{Op: op, Cause: cause, Err: err}
}

// probeBatch makes the skeleton, a random chain and a service port.
func probeBatch(cfg rules.Config) (*Batch, error) {
	b := resetBatch(cfg, nil, nil)
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
		b = p.plan(newMirror(1), b, []change{{compiled.ServicePortKey, compiled}}).batch
	}
	return b, nil
}

// missing returns the first thing, in nft syntax, that the kernel refuses: a set, a
// chain, or a rule in a chain of its own.
func missing(ctx context.Context, cfg rules.Config, kernel prober) string {
	for _, f := range cfg.Families {
		b := &Batch{}
		b.Add(Op{Verb: AddTable, Family: f})
		for _, set := range rules.Sets() {
			op := Op{Verb: AddSet, Family: f, Decl: set}
			b.Add(op)
			if kernel.Check(ctx, b) != nil {
				return string(op.appendText(nil))
			}
		}
		skeleton := rules.Skeleton(cfg, f)
		for _, c := range append(skeleton, rules.SlotChains(rules.Endpoints, 2)...) {
			op := Op{Verb: AddChain, Family: f, Chain: rules.Chain{Name: c.Name, Base: c.Base}}
			b.Add(op)
			if kernel.Check(ctx, b) != nil {
				return string(op.appendText(nil))
			}
		}
		for _, c := range append(skeleton, rules.SlotChains(rules.Endpoints, 2)...) {
			for _, rule := range c.Rules {
				b.Add(Op{Verb: AddRule, Family: f, Name: c.Name, Rule: rule})
				if kernel.Check(ctx, b) != nil {
					return string(rule.AppendText(nil, f))
				}
			}
		}
	}
	return ""
}

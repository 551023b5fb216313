package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// branch is one of the ways on which a packet may be, and what rules did to it there. It
// is comparable: ways that meet again are one.
type branch struct {
	packet      Packet // as it is now
	translated  bool
	masqueraded bool
	// destDone, sourceDone: the nat chains that translate it have had their turn.
	destDone, sourceDone bool
	// client is the map that remembers the source now, with which endpoint.
	client struct {
		Map      string
		Endpoint netip.AddrPort
	}
	ended Outcome // Dropped or Rejected; otherwise 0
}

// branches are different branches with their probabilities, in the order in which they
// were added.
type branches struct {
	list  []likelyBranch
	index map[branch]int
}

type likelyBranch struct {
	branch
	probability float64
}

func newBranches() *branches { return &branches{index: map[branch]int{}} }

func (bs *branches) add(b branch, probability float64) {
	i, found := bs.index[b]
	if !found {
		i = len(bs.list)
		bs.index[b] = i
		bs.list = append(bs.list, likelyBranch{branch: b})
	}
	bs.list[i].probability += probability
}

// walk is one packet's walk.
type walk struct {
	*Walker
	original   Packet
	remembered Clients
	current    *branches
	hookNow    Hook
	steps      []Step
	stepAt     map[place]int // index in steps
}

// place is where a rule is evaluated.
type place struct {
	hook  Hook
	chain string
	index int
}

// hook evaluates the base chains of a hook for the branches that pass it.
func (w *walk) hook(point HookPoint, passes func(branch) bool) {
	dest := point == Prerouting || point == Output   // translates destinations
	source := point == Input || point == Postrouting // translates sources
	for _, base := range w.hooks[point] {
		w.hookNow = *base.Base
		before := w.current
		w.current = newBranches()
		for _, b := range before.list {
			done := dest && b.destDone || source && b.sourceDone
			if b.ended != 0 || !passes(b.branch) || base.Base.Type == NATChain && done {
				w.current.add(b.branch, b.probability)
				continue
			}
			for _, through := range w.chain(base.Name, []likelyBranch{b}) {
				w.current.add(through.branch, through.probability)
			}
		}
	}
	w.change(func(b *branch) {
		if passes(*b) {
			b.destDone, b.sourceDone = b.destDone || dest, b.sourceDone || source
		}
	})
}

// loopBack lets packets come in through the loopback interface.
func (w *walk) loopBack() { w.change(func(b *branch) { b.packet.Interface = "lo" }) }

func (w *walk) change(f func(*branch)) {
	before := w.current
	w.current = newBranches()
	for _, b := range before.list {
		f(&b.branch)
		w.current.add(b.branch, b.probability)
	}
}

// results returns what the branches have led to.
func (w *walk) results() []Result {
	var results []Result
	for _, b := range w.current.list {
		r := Result{Outcome: b.ended, Dest: b.packet.Dest, Masqueraded: b.masqueraded, Mark: b.packet.Mark}
		switch {
		case b.ended != 0:
		case b.translated:
			r.Outcome = Translated
		default:
			r.Outcome = Untouched
		}
		same := func(s Result) bool { s.Probability = 0; return s == r }
		i := slices.IndexFunc(results, same)
		if i < 0 {
			i = len(results)
			results = append(results, r)
		}
		results[i].Probability += b.probability
	}
	slices.SortStableFunc(results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Outcome, b.Outcome), a.Dest.Compare(b.Dest))
	})
	return results
}

// chain evaluates a chain and returns the branches that come out at its end, or at the
// end of one that it goes to: they go on where the chain was jumped to.
func (w *walk) chain(name string, running []likelyBranch) (through []likelyBranch) {
	for i, rule := range w.chains[name].Rules {
		before := running
		running = nil
		for _, b := range before {
			next, ends := w.rule(place{w.hookNow, name, i}, rule, b)
			running, through = append(running, next...), append(through, ends...)
		}
	}
	return append(through, running...)
}

// rule evaluates a rule. It returns the branches that go on with the next one, and those
// that go on after the chain; the others have ended the base chain and are among the
// current ones.
func (w *walk) rule(at place, rule Rule, b likelyBranch) (next, through []likelyBranch) {
	for _, statement := range rule {
		switch s := statement.(type) {
		case Dispatch:
			return w.dispatch(at, rule, s, b)
		case DrawEndpoint:
			return w.drawEndpoint(at, rule, s, b), nil
		case DNATRemembered:
			endpoint := w.rememberedEndpoint(s.Map, b.branch)
			if !endpoint.IsValid() {
				return []likelyBranch{b}, nil
			}
			b.translate(endpoint)
		case DNAT:
			b.translate(s.Endpoint)
		case Masquerade:
			b.masqueraded, b.sourceDone = true, true
		case Drop:
			b.ended = Dropped
		case Reject:
			b.ended = Rejected
		case Jump:
			w.step(at, rule, b.probability)
			return w.chain(s.Chain, []likelyBranch{b}), nil
		case SetMark:
			b.packet.Mark |= s.Bit
			continue
		case FlipMark:
			b.packet.Mark ^= s.Bit
			continue
		case RememberClient:
			if !w.rememberedEndpoint(s.Map, b.branch).IsValid() {
				b.client.Map, b.client.Endpoint = s.Map, s.Endpoint
			}
			continue
		default:
			if !w.matches(s, b.packet) {
				return []likelyBranch{b}, nil
			}
			continue
		}
		// A verdict.
		w.step(at, rule, b.probability)
		w.current.add(b.branch, b.probability)
		return nil, nil
	}
	w.step(at, rule, b.probability)
	return []likelyBranch{b}, nil
}

// matches evaluates a statement that decides whether the rest of its rule is evaluated.
// The source that it sees is that of the client: which one a masqueraded packet has
// depends on routes.
func (w *walk) matches(s Statement, p Packet) bool {
	addr := func(f Field) netip.Addr {
		if f == SourceAddr {
			return p.Source.Addr()
		}
		return p.Dest.Addr()
	}
	switch s := s.(type) {
	case MatchSet:
		return len(w.elements.find(s.Set, p)) > 0 != s.Not
	case MatchOutside:
		return !s.Prefix.Contains(addr(s.Field))
	case MatchLocal:
		return w.host.local(addr(s.Field)) != s.Not
	case MatchNotFrom:
		if s.Prefix {
			return !strings.HasPrefix(p.Interface, s.Interface)
		}
		return p.Interface != s.Interface
	case MatchProtocol:
		return p.Protocol == s.Protocol
	case MatchNew:
		return true
	case MatchDNATed: // the kernel says so only if the translation changes something
		return p.Dest != w.original.Dest
	case MatchMark:
		return p.Mark&s.Bit == s.Bit
	default:
		panic(fmt.Sprintf("rules: statement %T cannot be evaluated", s))
	}
}

// dispatch goes on in the chains that the map may say.
func (w *walk) dispatch(at place, rule Rule, s Dispatch, b likelyBranch) (next, through []likelyBranch) {
	hits, each, miss := w.elements.draw(s.Map, s.Capacity, b.packet)
	if len(hits) > 0 {
		w.step(at, rule, b.probability*float64(len(hits))*each)
	}
	for _, e := range hits {
		through = append(through, w.chain(e.Chain, []likelyBranch{{b.branch, b.probability * each}})...)
	}
	if miss > 0 {
		next = []likelyBranch{{b.branch, b.probability * miss}}
	}
	return next, through
}

// drawEndpoint translates the packet to the endpoints that may be drawn, and returns
// what goes on with the next rule.
func (w *walk) drawEndpoint(at place, rule Rule, s DrawEndpoint, b likelyBranch) (next []likelyBranch) {
	hits, each, miss := w.elements.draw(s.Map, s.Capacity, b.packet)
	if len(hits) > 0 {
		w.step(at, rule, b.probability*float64(len(hits))*each)
	}
	for _, e := range hits {
		hit := b.branch
		hit.translate(e.Endpoint)
		w.current.add(hit, b.probability*each)
	}
	if miss > 0 {
		next = []likelyBranch{{b.branch, b.probability * miss}}
	}
	return next
}

func (b *branch) translate(endpoint netip.AddrPort) {
	b.packet.Dest, b.translated, b.destDone = endpoint, true, true
}

// rememberedEndpoint returns the endpoint with which the map remembers the source, or
// the zero AddrPort.
func (w *walk) rememberedEndpoint(clients string, b branch) netip.AddrPort {
	if endpoint, ok := w.remembered[clients][b.packet.Source.Addr()]; ok {
		return endpoint
	}
	if b.client.Map == clients {
		return b.client.Endpoint
	}
	return netip.AddrPort{}
}

// step notes that a branch matched a rule.
func (w *walk) step(at place, rule Rule, probability float64) {
	i, found := w.stepAt[at]
	if !found {
		i = len(w.steps)
		w.stepAt[at] = i
		w.steps = append(w.steps, Step{Hook: at.hook, Chain: at.chain, Index: at.index, Rule: rule})
	}
	w.steps[i].Probability += probability
}

package rules

import (
	"net/netip"
	"time"
)

// Statement is one statement of a rule: a match that decides whether the rest of
// the rule is evaluated, or an action. Every type below says the nft syntax that
// it stands for; f is "ip" or "ip6".
type Statement interface{ statement() }

type (
	// MatchSet is `<key of the set> @set`, or with Not `<key of the set> != @set`.
	MatchSet struct {
		Set SetID
		Not bool
	}
	// MatchOutside is `f saddr != prefix`, or `f daddr != prefix`.
	MatchOutside struct {
		Field  Field // SourceAddr or DestAddr
		Prefix netip.Prefix
	}
	// MatchLocal is `fib saddr type local` or `fib daddr type local`, or with Not
	// `... type != local`: whether the address is one of this node.
	MatchLocal struct {
		Field Field // SourceAddr or DestAddr
		Not   bool
	}
	// MatchNotFrom is `iifname != "interface"`, with Prefix `iifname != "interface*"`.
	// Packets of this node itself come from no interface.
	MatchNotFrom struct {
		Interface string
		Prefix    bool
	}
	// MatchProtocol is `meta l4proto protocol`.
	MatchProtocol struct{ Protocol Protocol }
	// MatchNew is `ct state new`.
	MatchNew struct{}
	// MatchDNATed is `ct status dnat`.
	MatchDNATed struct{}
	// MatchMark is `meta mark & bit == bit`.
	MatchMark struct{ Bit uint32 }
	// SetMark is `meta mark set meta mark | bit`.
	SetMark struct{ Bit uint32 }
	// FlipMark is `meta mark set meta mark ^ bit`.
	FlipMark struct{ Bit uint32 }
	// Dispatch is `<key of the map> vmap @map`: goes on in the chain that the map
	// says, if it has the key. If the key has a slot, that is `numgen random mod
	// capacity`.
	Dispatch struct {
		Map      SetID
		Capacity uint32
	}
	// DrawEndpoint is `dnat f to <key of the map> map @map`, where the key's slot
	// is `numgen random mod capacity`: translates the destination to the endpoint
	// in a random slot. An empty slot does not match, the next rule goes on.
	DrawEndpoint struct {
		Map      SetID
		Capacity uint32
	}
	// RememberClient is `update @map { f saddr timeout t : address . port }`: remembers
	// the source with the endpoint, or if it is remembered already, whatever the
	// endpoint, only renews that.
	RememberClient struct {
		Map      string
		Endpoint netip.AddrPort
		Timeout  time.Duration
	}
	// DNATRemembered is `dnat f to f saddr map @map`: translates the destination to the
	// endpoint that the source is remembered with. It does not match if there is none.
	DNATRemembered struct{ Map string }
	// DNAT is `dnat to address:port`.
	DNAT struct{ Endpoint netip.AddrPort }
	// Masquerade is `masquerade fully-random`.
	Masquerade struct{}
	// Reject is `reject`: ICMP port unreachable, also for TCP, as kube-proxy
	// does.
	Reject struct{}
	// Drop is `drop`.
	Drop struct{}
	// Jump is `jump chain`.
	Jump struct{ Chain string }
)

func (MatchSet) statement()       {}
func (MatchOutside) statement()   {}
func (MatchLocal) statement()     {}
func (MatchNotFrom) statement()   {}
func (MatchProtocol) statement()  {}
func (RememberClient) statement() {}
func (DNATRemembered) statement() {}
func (DNAT) statement()           {}
func (MatchNew) statement()       {}
func (MatchDNATed) statement()    {}
func (MatchMark) statement()      {}
func (SetMark) statement()        {}
func (FlipMark) statement()       {}
func (Dispatch) statement()       {}
func (DrawEndpoint) statement()   {}
func (Masquerade) statement()     {}
func (Reject) statement()         {}
func (Drop) statement()           {}
func (Jump) statement()           {}

// Rule is a sequence of statements.
type Rule []Statement

// ChainType is the type of a base chain.
type ChainType string

// The chain types in use.
const (
	NATChain    ChainType = "nat"
	FilterChain ChainType = "filter"
)

// HookPoint is a netfilter hook of the IP families.
type HookPoint uint8

// The hooks, with the kernel's numbers (NF_INET_*).
const (
	Prerouting  HookPoint = 0
	Input       HookPoint = 1
	Forward     HookPoint = 2
	Output      HookPoint = 3
	Postrouting HookPoint = 4
)

// String returns the hook's name in nft syntax.
func (h HookPoint) String() string {
	return [...]string{"prerouting", "input", "forward", "output", "postrouting"}[h]
}

// Hook is where a base chain is attached. Base chains have policy accept.
type Hook struct {
	Type     ChainType
	Point    HookPoint
	Priority int32
}

// Chain is a chain with its rules. Base is nil for a regular chain.
type Chain struct {
	Name  string
	Base  *Hook
	Rules []Rule
}

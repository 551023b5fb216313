package rules

import (
	"strconv"
	"strings"
)

// slotChainPrefix returns what the names of the chains begin with that draw from a map
// of slots; the capacity follows. It is empty for other maps.
func slotChainPrefix(slots SetID) string {
	switch slots {
	case Endpoints:
		return "random-"
	case LocalEndpoints:
		return "local-random-"
	case AffinityEndpoints:
		return "affinity-"
	case LocalAffinityEndpoints:
		return "local-affinity-"
	case NodePortEndpoints:
		return "nodeport-random-"
	case LocalNodePortEndpoints:
		return "local-nodeport-random-"
	case NodePortAffinityEndpoints:
		return "nodeport-affinity-"
	case LocalNodePortAffinityEndpoints:
		return "local-nodeport-affinity-"
	default:
		return ""
	}
}

// SlotChain returns the chain that sends a packet to the endpoint in a random filled
// slot of a table of the given capacity in a map of slots: it draws until it hits one,
// and takes slot 0 after tries(capacity) misses. With capacity 0 it does nothing: the
// packet goes on untranslated.
func SlotChain(slots SetID, capacity int) Chain {
	draw := func(capacity int) Rule {
		if slots.Value() == VerdictValue {
			return Rule{Dispatch{slots, uint32(capacity)}}
		}
		return Rule{DrawEndpoint{slots, uint32(capacity)}}
	}
	c := Chain{Name: chainName(slots, capacity)}
	for range tries(capacity) {
		c.Rules = append(c.Rules, draw(capacity))
	}
	if capacity > 0 {
		c.Rules = append(c.Rules, draw(1))
	}
	return c
}

// ChainByName returns the chain of a capacity that elements refer to by this name,
// which is made when the first of them appears.
func ChainByName(name string) (Chain, bool) {
	for slots := range numSets {
		prefix := slotChainPrefix(slots)
		digits, ok := strings.CutPrefix(name, prefix)
		capacity, err := strconv.ParseUint(digits, 10, 31)
		if prefix != "" && ok && err == nil && chainName(slots, int(capacity)) == name { // there is one way to write it
			return SlotChain(slots, int(capacity)), true
		}
	}
	return Chain{}, false
}

// chainName returns the name of the chain that draws from a map of slots.
func chainName(slots SetID, capacity int) string {
	return slotChainPrefix(slots) + strconv.Itoa(capacity)
}

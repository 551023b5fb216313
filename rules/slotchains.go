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

// SlotChains returns the chain that sends a packet to the endpoint in a random filled
// slot of a table of the given capacity in a map of slots, after the chains that it jumps
// to: it draws until it hits one, and takes slot 0 after tries(capacity) misses. With
// capacity 0 it does nothing: the packet goes on untranslated.
//
// The draw is a chain of its own, so that a capacity has one rule that looks the map up,
// not one for each try. For each such rule the kernel examines every element that is in
// the map when the rule comes (nf_tables_bind_set), and the rule again for every element
// that comes to the map (nft_add_set_elem).
func SlotChains(slots SetID, capacity int) []Chain {
	c := Chain{Name: chainName(slots, capacity)}
	switch capacity {
	case 0:
		return []Chain{c}
	case 1:
		c.Rules = []Rule{drawRule(slots, 1)}
		return []Chain{c}
	}
	draw := Chain{Name: drawChainPrefix + c.Name, Rules: []Rule{drawRule(slots, capacity)}}
	for range tries(capacity) {
		c.Rules = append(c.Rules, Rule{Jump{draw.Name}})
	}
	first := SlotChains(slots, 1)[0]
	c.Rules = append(c.Rules, Rule{Jump{first.Name}})
	return []Chain{draw, first, c}
}

// drawChainPrefix is what the name of a chain that draws once begins with; the chain that
// jumps to it follows.
const drawChainPrefix = "draw-"

// drawRule draws a slot once.
func drawRule(slots SetID, capacity int) Rule {
	if slots.Value() == VerdictValue {
		return Rule{Dispatch{slots, uint32(capacity)}}
	}
	return Rule{DrawEndpoint{slots, uint32(capacity)}}
}

// ChainsByName returns the chain that draws slots by this name, after the chains that it
// jumps to: all are made when the first element refers to it. It returns nil for a chain
// that draws no slots.
func ChainsByName(name string) []Chain {
	if of, ok := strings.CutPrefix(name, drawChainPrefix); ok {
		if chains := ChainsByName(of); len(chains) > 1 && chains[0].Name == name {
			return chains[:1]
		}
		return nil
	}
	for slots := range numSets {
		prefix := slotChainPrefix(slots)
		digits, ok := strings.CutPrefix(name, prefix)
		capacity, err := strconv.ParseUint(digits, 10, 31)
		if prefix != "" && ok && err == nil && chainName(slots, int(capacity)) == name { // there is one way to write it
			return SlotChains(slots, int(capacity))
		}
	}
	return nil
}

// chainName returns the name of the chain that draws from a map of slots.
func chainName(slots SetID, capacity int) string {
	return slotChainPrefix(slots) + strconv.Itoa(capacity)
}

package proxier

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// conflicts remembers which claims in vain were reported, so that each is once.
type conflicts struct {
	touched map[frontend]bool // whose claimants have changed since
	// told says of each claim in vain which service port was said to have the frontend.
	told map[claim]rules.ServicePortKey
}

func newConflicts() conflicts {
	return conflicts{touched: map[frontend]bool{}, told: map[claim]rules.ServicePortKey{}}
}

// touch takes note of a claim that has come or gone.
func (c *conflicts) touch(cl claim, remaining claims) {
	delete(c.told, cl)
	f := frontend{cl.addr, cl.key.Protocol}
	owner, ok := remaining.owner(f)
	if _, told := c.told[claim{owner, f.addr}]; ok && told || len(remaining[f]) > 1 {
		c.touched[f] = true
	}
}

// conflict is a claim in vain.
type conflict struct {
	frontend
	loser, owner claimant
}

// take returns the claims in vain that were not reported yet, sorted.
func (c *conflicts) take(all claims) []conflict {
	var found []conflict
	for f := range c.touched {
		for i, loser := range all[f] {
			cl, owner := claim{loser.key, f.addr}, all[f][0]
			if i == 0 {
				delete(c.told, cl)
			} else if c.told[cl] != owner.key {
				c.told[cl] = owner.key
				found = append(found, conflict{f, loser, owner})
			}
		}
	}
	c.touched = map[frontend]bool{}
	slices.SortFunc(found, func(a, b conflict) int {
		return cmp.Or(a.loser.key.Compare(b.loser.key), a.addr.Compare(b.addr))
	})
	return found
}

// TakeProblems returns a Problem for each address that a service port does not have
// because another one has it, sorted by service port. It does so once; again only when
// the address has gone to a third one, or was lost anew.
func (t *Tracker) TakeProblems() []Problem {
	var problems []Problem
	for _, c := range t.conflicts.take(t.claims) {
		name := types.NamespacedName{Namespace: c.loser.key.Namespace, Name: c.loser.key.Name}
		problems = append(problems, Problem{
			Object: ObjectRef{Kind: kindService, Name: name, UID: t.services[name].service.UID},
			Reason: ReasonAddressConflict,
			Err:    c.err(),
		})
	}
	return problems
}

// err says what to do about the conflict.
func (c conflict) err() error {
	why := "is older"
	if c.owner.created.Equal(c.loser.created) {
		why = "is as old and comes first by name"
	}
	what, other := fmt.Sprintf("%s, %s port %d", c.addr.Addr(), c.protocol, c.addr.Port()), "address or port"
	if c.addr.Addr().IsUnspecified() {
		what, other = fmt.Sprintf("%s nodePort %d (%s)", c.protocol, c.addr.Port(), c.loser.key.Family), "nodePort"
	}
	return fmt.Errorf("Service %s is not served at %s: Service %s has it, which %s; give one of them another %s",
		c.loser.key.ServicePortName, what, c.owner.key.ServicePortName, why, other)
}

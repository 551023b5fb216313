package proxier

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

// claim is a service port's wish for an address and port.
type claim struct {
	key  rules.ServicePortKey
	addr netip.AddrPort
}

// frontend is what can belong to one service port only.
type frontend struct {
	addr     netip.AddrPort
	protocol rules.Protocol
}

// claimant is a service port that claims a frontend.
type claimant struct {
	key     rules.ServicePortKey
	created time.Time
}

// compare orders claimants: the first has the frontend. It is the one of the older
// Service, among equally old ones the one whose name sorts first.
func (c claimant) compare(d claimant) int {
	if order := c.created.Compare(d.created); order != 0 {
		return order
	}
	return c.key.Compare(d.key)
}

// claims holds the claimants of every frontend, in their order. The API server
// gives an address to one Service only; manifests may not, nor does a relist in
// which an address has moved.
type claims map[frontend][]claimant

// add adds a claim and returns the service ports whose frontends this touches.
func (c claims) add(cl claim, created time.Time) []rules.ServicePortKey {
	f := frontend{cl.addr, cl.key.Protocol}
	all := c[f]
	next := claimant{cl.key, created}
	i, _ := slices.BinarySearchFunc(all, next, claimant.compare)
	touched := []rules.ServicePortKey{cl.key}
	if i == 0 && len(all) > 0 {
		touched = append(touched, all[0].key) // has lost it
	}
	c[f] = slices.Insert(all, i, next)
	return touched
}

// remove removes a claim and returns the service ports whose frontends this
// touches.
func (c claims) remove(cl claim, created time.Time) []rules.ServicePortKey {
	f := frontend{cl.addr, cl.key.Protocol}
	all := c[f]
	touched := []rules.ServicePortKey{cl.key}
	i, found := slices.BinarySearchFunc(all, claimant{cl.key, created}, claimant.compare)
	if !found {
		return touched
	}
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(c, f)
		return touched
	}
	if c[f] = all; i == 0 {
		touched = append(touched, all[0].key) // has won it
	}
	return touched
}

// owner returns the service port that has the frontend.
func (c claims) owner(f frontend) (rules.ServicePortKey, bool) {
	if all := c[f]; len(all) > 0 {
		return all[0].key, true
	}
	return rules.ServicePortKey{}, false
}

package proxier

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// Tracker holds the newest slim objects and knows which service ports a change
// touches. It is used by one goroutine at a time.
type Tracker struct {
	families      []rules.Family
	noExternalIPs bool // external IPs are not served
	services      map[types.NamespacedName]*tracked
	// owners says to which Service each EndpointSlice counted last.
	owners    map[types.NamespacedName]types.NamespacedName
	claims    claims
	conflicts conflicts
	// dirty holds the service ports that were touched since they were taken: false for
	// those of which large knows what has changed, true for those to be resolved anew.
	dirty map[rules.ServicePortKey]bool
	large map[rules.ServicePortKey]*large // nil for one that is not followed yet
	// largeEndpoints is the constant, but in tests.
	largeEndpoints int

	// zone is where this node is, empty if it is not known.
	zone string
	// nodeIPs are this node's own addresses, at most one a family.
	nodeIPs map[rules.Family]netip.Addr
	// zoned are the slices with hints for zones, restricted the Services with source
	// ranges: what the zone and the addresses of this node matter to.
	zoned, restricted map[types.NamespacedName]bool
	health            serviceHealth
}

// tracked is a Service with its EndpointSlices; either may come first.
type tracked struct {
	service *Service         // nil if there is none
	slices  []*EndpointSlice // sorted by name; almost all Services have one or two
}

// find returns where the slice of a name is, or has to go.
func (e *tracked) find(name types.NamespacedName) (i int, found bool) {
	return slices.BinarySearchFunc(e.slices, name.Name, func(s *EndpointSlice, name string) int {
		return strings.Compare(s.Name.Name, name)
	})
}

// slice returns the slice of a name, nil if there is none.
func (e *tracked) slice(name types.NamespacedName) *EndpointSlice {
	if i, found := e.find(name); found {
		return e.slices[i]
	}
	return nil
}

// add adds a slice whose name is not there yet.
func (e *tracked) add(s *EndpointSlice) {
	i, _ := e.find(s.Name)
	e.slices = slices.Insert(e.slices, i, s)
}

// remove removes the slice of a name that is there.
func (e *tracked) remove(name types.NamespacedName) {
	i, _ := e.find(name)
	e.slices = slices.Delete(e.slices, i, i+1)
}

// NewTracker returns a Tracker that knows nothing yet. Service ports of other
// families than those given are never reported.
func NewTracker(families []rules.Family) *Tracker {
	return &Tracker{
		families:   families,
		services:   map[types.NamespacedName]*tracked{},
		owners:     map[types.NamespacedName]types.NamespacedName{},
		claims:     claims{},
		conflicts:  newConflicts(),
		dirty:      map[rules.ServicePortKey]bool{},
		large:      map[rules.ServicePortKey]*large{},
		zoned:      map[types.NamespacedName]bool{},
		restricted: map[types.NamespacedName]bool{},
		health:     newServiceHealth(),

		largeEndpoints: largeEndpoints,
	}
}

// Apply takes changes and reports whether any service port, or the health of a Service,
// is touched by this or an earlier change that was not taken yet.
func (t *Tracker) Apply(changes Changes) bool {
	t.makeRoom(changes)
	if changes.Node != nil {
		t.applyNode(changes.Node.Node)
	}
	for _, c := range changes.Services {
		t.applyService(c.Name, t.allowed(c.Service))
	}
	for _, c := range changes.Slices {
		t.applySlice(c.Name, c.Slice)
	}
	return len(t.dirty)+len(t.health.dirty) > 0
}

// makeRoom has the first lists not grow the maps step by step.
func (t *Tracker) makeRoom(changes Changes) {
	if n := max(len(changes.Services), len(changes.Slices)); len(t.services) == 0 {
		t.services = make(map[types.NamespacedName]*tracked, n)
	}
	if n := len(changes.Services); len(t.claims) == 0 {
		t.claims = make(claims, n)
	}
	if n := len(changes.Slices); len(t.owners) == 0 {
		t.owners = make(map[types.NamespacedName]types.NamespacedName, n)
	}
	if n := max(len(changes.Services), len(changes.Slices)); len(t.dirty) == 0 && n > 1 {
		t.dirty = make(map[rules.ServicePortKey]bool, n)
	}
}

// TakeChanges returns the newest state of every service port touched since the
// last call, or how it differs from what was returned before, sorted by key.
func (t *Tracker) TakeChanges() []syncer.Change {
	keys := slices.AppendSeq(make([]rules.ServicePortKey, 0, len(t.dirty)), maps.Keys(t.dirty))
	slices.SortFunc(keys, rules.ServicePortKey.Compare)
	changes := make([]syncer.Change, len(keys))
	for i, key := range keys {
		changes[i] = t.take(key)
	}
	// A new map: the old one would keep the size of its largest content, and clearing
	// and listing it would take as long for ever.
	t.dirty = map[rules.ServicePortKey]bool{}
	return changes
}

// take returns what has become of a dirty service port.
func (t *Tracker) take(key rules.ServicePortKey) syncer.Change {
	if !t.dirty[key] && t.large[key] != nil { // none if the Service has changed, too
		if change, ok := t.takeLarge(key); ok {
			return change
		}
	}
	sp := t.resolve(key)
	t.follow(key, sp)
	return syncer.Change{Key: key, ServicePort: sp}
}

// allowed returns the Service without the addresses that are not to be served.
func (t *Tracker) allowed(s *Service) *Service {
	external := func(a ServiceAddr) bool { return a.Kind == rules.ExternalIP }
	if !t.noExternalIPs || s == nil || !slices.ContainsFunc(s.Addrs, external) {
		return s
	}
	allowed := *s
	allowed.Addrs = slices.DeleteFunc(slices.Clone(s.Addrs), external)
	return &allowed
}

func (t *Tracker) applyService(name types.NamespacedName, next *Service) {
	entry := t.entry(name)
	prev := entry.service
	if prev != nil && next != nil && prev.Equal(next) {
		return
	}
	entry.service = next
	t.forget(name, entry)
	before, after := t.frontends(prev), t.frontends(next)
	if prev != nil && next != nil && !prev.sameWays(next) {
		for f := range after {
			t.dirty[f.key] = true
		}
	}
	for f := range before {
		delete(t.large, f.key)
		if created(prev) != created(next) || !after[f] {
			t.release(f, prev.Created)
		}
	}
	for f := range after {
		if created(prev) != created(next) || !before[f] {
			t.claim(f, next.Created)
		}
	}
	keep(t.restricted, name, next != nil && next.Restricted)
	t.touchHealth(name)
}

func (t *Tracker) claim(c claim, created time.Time) {
	t.mark(t.claims.add(c, created))
	t.conflicts.touch(c, t.claims)
}

func (t *Tracker) release(c claim, created time.Time) {
	t.mark(t.claims.remove(c, created))
	t.conflicts.touch(c, t.claims)
}

// created returns what decides between claims, 0 for no Service.
func created(s *Service) int64 {
	if s == nil {
		return 0
	}
	return s.Created.UnixNano()
}

// frontends returns the addresses that a Service claims for its ports.
func (t *Tracker) frontends(s *Service) map[claim]bool {
	all := map[claim]bool{}
	if s == nil {
		return all
	}
	for _, family := range t.families {
		for p, f := range s.frontends(family) {
			all[claim{keyOf(s.Name, p.Name, p.Protocol, family), f.Addr}] = true
		}
	}
	return all
}

func (t *Tracker) applySlice(name types.NamespacedName, next *EndpointSlice) {
	var prev *EndpointSlice
	if owner, ok := t.owners[name]; ok {
		prev = t.services[owner].slice(name)
	}
	if prev == next || prev != nil && next != nil && prev.Equal(next) {
		return
	}
	if prev != nil {
		owner := t.owners[name]
		delete(t.owners, name)
		t.services[owner].remove(name)
		t.forget(owner, t.services[owner])
		t.touchHealth(owner)
	}
	if next != nil {
		owner := types.NamespacedName{Namespace: name.Namespace, Name: next.Service}
		t.owners[name] = owner
		t.entry(owner).add(next)
		t.touchHealth(owner)
	}
	keep(t.zoned, name, next != nil && next.zoned())
	t.markSlices(prev, next)
}

// markSlices marks the service ports that differ between two states of a slice.
func (t *Tracker) markSlices(prev, next *EndpointSlice) {
	var touched []rules.ServicePortKey // large ones
	for _, s := range []*EndpointSlice{prev, next} {
		if s == nil || !slices.Contains(t.families, s.Family) {
			continue
		}
		for _, p := range s.Ports {
			if sameEndpoints(prev, next) && slices.Contains(prev.Ports, p) && slices.Contains(next.Ports, p) {
				continue
			}
			key := keyOf(types.NamespacedName{Namespace: s.Name.Namespace, Name: s.Service}, p.Name, p.Protocol, s.Family)
			switch {
			case slices.Contains(touched, key):
			case t.large[key] != nil:
				touched = append(touched, key)
				t.touchLarge(key, prev, next)
			default:
				t.dirty[key] = true
			}
		}
	}
}

// sameEndpoints reports whether two states of a slice differ in their ports only.
func sameEndpoints(a, b *EndpointSlice) bool {
	return a != nil && b != nil && a.Service == b.Service && a.Family == b.Family && a.Weight == b.Weight &&
		slices.Equal(a.Endpoints, b.Endpoints)
}

func (t *Tracker) mark(keys []rules.ServicePortKey) {
	for _, key := range keys {
		t.dirty[key] = true
	}
}

// keep makes a name one of a set, or none.
func keep(set map[types.NamespacedName]bool, name types.NamespacedName, is bool) {
	if is {
		set[name] = true
	} else {
		delete(set, name)
	}
}

func (t *Tracker) entry(name types.NamespacedName) *tracked {
	entry, ok := t.services[name]
	if !ok {
		entry = &tracked{}
		t.services[name] = entry
	}
	return entry
}

// forget drops an entry that holds nothing any more.
func (t *Tracker) forget(name types.NamespacedName, entry *tracked) {
	if entry.service == nil && len(entry.slices) == 0 {
		delete(t.services, name)
	}
}

// serviceName returns the Service that a service port is of.
func serviceName(key rules.ServicePortKey) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
}

func keyOf(service types.NamespacedName, port string, p rules.Protocol, f rules.Family) rules.ServicePortKey {
	return rules.ServicePortKey{
		ServicePortName: rules.ServicePortName{Namespace: service.Namespace, Name: service.Name, Port: port, Protocol: p},
		Family:          f,
	}
}

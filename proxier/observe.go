package proxier

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/proxier/events"
	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
)

// Observers is what tells others how the proxy does. A nil field is left out.
type Observers struct {
	Metrics *metrics.Metrics
	// Health knows whether the proxy keeps up.
	Health *healthcheck.ProxyHealth
	// ServiceHealth answers on the health-check ports of Services. The Proxier runs it.
	ServiceHealth *healthcheck.ServiceHealth
	// Events tells the owners of objects what is wrong with them. Its owner runs it.
	Events events.Sink
}

// reporter tells the Observers what happens. Its methods are called with the lock of the
// Proxier held, or from its loop.
type reporter struct {
	Observers

	families []rules.Family
	began    time.Time // of the process: older triggers say nothing about this one
	// What waits for a sync: changes of Services and of EndpointSlices, and since when
	// the controllers have known of them.
	services, slices int
	triggers         map[rules.Family][]time.Time
	// noLocal counts service ports without an endpoint that their policy Local needs.
	noLocal noLocalEndpoints
}

func newReporter(o Observers, families []rules.Family, now time.Time) *reporter {
	return &reporter{
		Observers: o, families: families, began: now,
		triggers: map[rules.Family][]time.Time{}, noLocal: newNoLocalEndpoints(),
	}
}

// received notes changes that have come. Those that are not pending touch nothing: no
// sync follows.
func (o *reporter) received(c Changes, pending bool) {
	if pending {
		o.services += len(c.Services)
		o.slices += len(c.Slices)
	}
	if o.Metrics != nil {
		o.Metrics.ServiceChanges(len(c.Services), o.services)
		o.Metrics.EndpointChanges(len(c.Slices), o.slices)
		for _, s := range c.Slices {
			if pending && s.Slice != nil && s.Slice.Triggered.After(o.began) {
				o.triggers[s.Slice.Family] = append(o.triggers[s.Slice.Family], s.Slice.Triggered)
			}
		}
	}
	if o.Health != nil && c.Node != nil {
		o.Health.SetNode(healthOf(c.Node.Node))
	}
}

func healthOf(n *Node) *healthcheck.Node {
	if n == nil {
		return nil
	}
	return &healthcheck.Node{Deleting: n.Deleting, ToBeDeleted: n.ToBeDeleted}
}

// queued notes that there is something to sync.
func (o *reporter) queued(now time.Time) {
	if o.Health != nil {
		o.Health.Queued(o.families...)
	}
	if o.Metrics != nil {
		for _, f := range o.families {
			o.Metrics.SyncQueued(f, now)
		}
	}
}

// taken notes that a sync has taken all that waits, and returns since when controllers
// have known of it.
func (o *reporter) taken(w Work) map[rules.Family][]time.Time {
	if o.Health != nil {
		o.Health.Began(o.families...)
	}
	o.services, o.slices = 0, 0
	if o.Metrics == nil {
		return nil
	}
	o.Metrics.ServiceChanges(0, 0)
	o.Metrics.EndpointChanges(0, 0)
	o.noLocal.update(w.Changes)
	if len(o.triggers) == 0 {
		return nil
	}
	triggers := o.triggers
	o.triggers = map[rules.Family][]time.Time{}
	return triggers
}

// restore takes back what a sync that failed has taken, for the next one.
func (o *reporter) restore(w *work) {
	for f, times := range w.triggers {
		o.triggers[f] = append(times, o.triggers[f]...)
	}
}

// synced notes the outcome of a sync.
func (o *reporter) synced(w *work, r Report, end time.Time) {
	switch {
	case o.Health == nil:
	case r.Err == nil:
		o.Health.Updated(o.families...)
	default: // there is something to do, even if no change has come
		o.Health.Queued(o.families...)
	}
	if o.Metrics == nil {
		return
	}
	o.Metrics.Synced(metrics.Sync{
		Families: o.touched(w, r), Full: r.Full, Failed: r.Err != nil, Queued: r.Queued, Took: r.Took, End: end,
	})
	if r.Full {
		o.Metrics.Resynced(w.reason)
	}
	if w.repairs && r.Err == nil {
		o.Metrics.ForeignChangeRepaired()
	}
	for range r.Refused {
		o.Metrics.ObjectSkipped(ReasonRefused)
	}
	if r.Err != nil {
		return
	}
	for f, times := range w.triggers {
		for _, t := range times {
			o.Metrics.NetworkProgrammed(f, end.Sub(t))
		}
	}
	for _, f := range o.families {
		internal, external := o.noLocal.count(f)
		o.Metrics.NoLocalEndpoints(f, internal, external)
		o.Metrics.Installed(f, r.Installed[f].ServicePorts, r.Installed[f].Elements)
	}
}

// touched returns the families whose rules a sync changed.
func (o *reporter) touched(w *work, r Report) []rules.Family {
	if r.Full || w.Nodes != nil {
		return o.families
	}
	var touched []rules.Family
	for _, f := range o.families {
		for _, c := range w.Changes {
			if c.Key.Family == f {
				touched = append(touched, f)
				break
			}
		}
	}
	return touched
}

// problem tells of an object that cannot be used as it is.
func (o *reporter) problem(p Problem) {
	if o.Metrics != nil {
		if p.Reason == ReasonBadAnnotation {
			o.Metrics.AnnotationIgnored()
		} else {
			o.Metrics.ObjectSkipped(p.Reason)
		}
	}
	if o.Events == nil || p.Object.Kind == "" {
		return
	}
	o.Events.Record(events.Event{
		Regarding: p.Object.reference(), Type: events.Warning, Reason: p.Reason, Action: "Configure",
		Note: strings.ReplaceAll(p.Err.Error(), "\n", "; "),
	})
}

// serveHealth tells which Services have health-check ports, where these are open, and
// how many endpoints are here.
func (o *reporter) serveHealth(w *work) {
	if o.ServiceHealth != nil && w.health != nil {
		o.ServiceHealth.Reconcile(w.health, w.healthAddrs)
	}
}

// reference returns the reference of an Event.
func (r ObjectRef) reference() corev1.ObjectReference {
	version := "v1"
	switch r.Kind {
	case kindSlice:
		version = "discovery.k8s.io/v1"
	case kindServiceCIDR:
		version = "networking.k8s.io/v1"
	}
	return corev1.ObjectReference{
		APIVersion: version, Kind: r.Kind, Namespace: r.Name.Namespace, Name: r.Name.Name, UID: r.UID,
	}
}

// healthAddrs returns the addresses on which health-check ports are open: where
// NodePorts are.
func (s *nodeState) healthAddrs() []netip.Addr {
	var addrs []netip.Addr
	for _, f := range s.rules.Families {
		open, all := s.open(f)
		switch {
		case !all:
			addrs = append(addrs, open...)
		case f == rules.IPv4:
			addrs = append(addrs, netip.IPv4Unspecified())
		default:
			addrs = append(addrs, netip.IPv6Unspecified())
		}
	}
	return addrs
}

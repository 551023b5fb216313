// Package proxier owns everything that touches Kubernetes: it turns Services and
// EndpointSlices into the service ports that this node shall serve, and keeps the
// syncer at work.
//
//	Source: API server, or manifests               WatchAddresses   WatchForeign
//	   |  slim objects: netip addresses, only         | of the         | who else changes
//	   |  the fields in use                           | interfaces     | our tables
//	   v                                              v                |
//	Cluster: the newest state of everything that the rules depend on   |
//	   |  Tracker: which service ports does a change touch?            |
//	   |    resolve: usable endpoints, and who has an address          |
//	   |    large: of very many endpoints, which few come and go       |
//	   |  nodeState: NodePort addresses, pod CIDRs, ServiceCIDRs       |
//	   v                                                               v
//	loop: one goroutine, one select -----------------------------> syncer.Sync
//	   |                \--> Flows, Affinity, beside it: what changes leave behind
//	   v
//	Observers: metrics, health, Events
//
// The API source is made of client-go's reflectors, the part of an informer that
// lists, watches and starts again. An informer's own store would hold every object
// of the cluster a second time; here each exists once, slim, from the moment it is
// decoded.
//
// Its promises:
//
//   - The kernel is left as it is until the source has delivered its first full
//     lists, and the addresses of the interfaces are known.
//   - What comes out depends on the newest objects alone, never on the order of
//     events, of slices or of endpoints. An update that changes nothing the proxy
//     uses causes nothing.
//   - What a change of an EndpointSlice costs does not depend on the number of the others
//     of its Service, however many endpoints that has. This holds as long as all of these
//     count alike: a Service with affinity, traffic policy Local, weights or hints, or an
//     endpoint on this node that changes, is resolved from all its endpoints.
//   - One bad object costs itself: it is reported, and everything else goes on.
//   - A change is synced at once while the loop is idle; changes that come during a
//     sync are one sync. A failed sync is repeated, after 20 ms at first, then
//     less often, up to every 10 s. Everything is written anew once an hour, and
//     when another program has changed our tables: at once, less often if that goes
//     on. A sync that meets such a change waits for this, too, and is no failure.
package proxier

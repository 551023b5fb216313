// Package proxier owns everything that touches Kubernetes: it turns Services and
// EndpointSlices into the service ports that this node shall serve, and keeps the
// syncer at work.
//
//	Source: API server, or manifests
//	   |  slim objects: netip addresses, only the fields in use
//	   v
//	Tracker: the newest objects; which service ports does a change touch?
//	   |  resolve: usable endpoints, and who has an address
//	   v
//	loop: one goroutine, one select ---> syncer.Sync
//	                                \--> Flows, beside it: what changes leave behind
//
// The API source is made of client-go's reflectors, the part of an informer that
// lists, watches and starts again. An informer's own store would hold every object
// of the cluster a second time; here each exists once, slim, from the moment it is
// decoded.
//
// Its promises:
//
//   - The kernel is left as it is until the source has delivered its first full
//     lists.
//   - What comes out depends on the newest objects alone, never on the order of
//     events, of slices or of endpoints. An update that changes nothing the proxy
//     uses causes nothing.
//   - One bad object costs itself: it is reported, and everything else goes on.
//   - A change is synced at once while the loop is idle; changes that come during a
//     sync are one sync. A failed sync is repeated, after 20 ms at first, then
//     less often, up to every 10 s. Everything is written anew once an hour.
package proxier

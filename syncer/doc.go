// Package syncer owns everything that touches the kernel: it keeps the ruleset as
// wanted, sends only what differs, and knows what to do when that goes wrong.
//
//	         changed service ports
//	                 |
//	                 v
//	rules.Compile:  wanted                      installed (the mirror: what the
//	                 |                              |      kernel has accepted)
//	                 +----------> plan <------------+
//	                               |                ^
//	                 Batch: operations in order,    |
//	                 counted, printable as nft      | commit, only after
//	                               |                | the kernel took it
//	                               v                |
//	                            Kernel -------------+
//	                  Netlink (real) or Memory (a strict model)
//
// Its promises:
//
//   - Work is proportional to the change: one endpoint is one element operation a
//     frontend, an unchanged service port no batch at all.
//   - A batch is atomic. The kernel holds what was wanted before or what is wanted
//     now, never a mixture.
//   - Nothing is lost. What Sync was told is wanted until it is told otherwise, so a
//     failed Sync is repeated by the next one.
//
// # Start
//
// The first Sync, and one after an error, does not read elements back: a dump of a
// large map costs the kernel quadratic time. It lists chains and sets, keeps the
// base chains that are as wanted, so that no hook is ever without its chain, and
// flushes and refills everything else in one batch. Packets see the old rules or
// the new ones. Only where there is nothing of ours yet, or where the socket's
// buffers are too small (in a user namespace net.core.wmem_max and rmem_max bound
// them), is it done in several batches.
//
// # Errors
//
//	cause            the kernel        what happens
//	Refused          has not changed   the service ports that cause it are searched for by
//	                                   halving, with checks that change nothing; all others
//	                                   are installed; the bad ones are tried again when
//	                                   they change and at a full write
//	  "no such ..."  has not changed   another program changed our tables: the Sync fails,
//	                                   the next one writes everything
//	TooLarge         has not changed   as Refused
//	Forbidden        has not changed   the Sync fails
//	Unknown          nobody knows      the socket is closed, since an answer may still come;
//	                                   the Sync fails, the next one writes everything
//
// A check sends the batch with an impossible last operation: the kernel examines
// all of it and commits nothing.
//
// # Chains
//
// A chain that draws from a table of some capacity is added with the first element
// that refers to it, so that a listing shows only capacities in use. It stays until
// the next full write: kernels before 6.2 may still count a reference from an
// element that has just gone.
//
// # Conntrack
//
// Rules decide about the first packet of a flow. The others follow its conntrack
// entry, which lives as long as packets come: a client of UDP that keeps its port, as
// DNS forwarders and telephones do, would never leave an endpoint that is gone. So
// Conntrack deletes entries of UDP and SCTP beside the syncs:
//
//	the frontend          an entry whose replies come from   is
//	has endpoints         one of them                        kept
//	                      anywhere else, untranslated too    deleted
//	has none              itself: never translated           kept
//	                      anywhere else                      deleted
//	has gone              itself: somebody else's            kept
//	                      anywhere else                      deleted
//	was never ours        -                                  kept
//
// Endpoints are all that still serve, of whatever policy and topology, not only those
// that new flows go to. TCP is left alone.
//
//   - Only frontends whose change may have made a flow stale are looked at: an endpoint
//     more reads nothing. After a full write, so after a start, all are.
//   - The table is read as a stream into one buffer, the kernel filters it by family and
//     protocol, and by port where one is enough. Each stale entry is deleted at once,
//     by its tuple, zone and ID.
//   - A dump that is interrupted is repeated, less and less often: it does not show that
//     an entry is not there.
//   - From before a commit until after it, flows to the frontends concerned are not
//     judged: nobody knows which rules a flow has met.
//   - Passes pause as long as they work.
//
// What changed while no daemon ran is seen for frontends that still exist. Flows to
// frontends that went meanwhile stay until they end, since nobody knows any more that
// they were ours.
//
// # Addresses
//
// NodePorts are served on addresses of this node, which come and go. Addresses
// subscribes to their notifications, and dumps them first and after every burst of
// these: a dump is always the truth of some moment after the change, in whatever order
// they came, and there are few addresses. A dump that failed or was interrupted is never
// used; the last good set stays.
//
// # Leftovers
//
// kube-proxy leaves its rules in the kernel when it ends. They serve until ours are in
// force; then both are, and those of kube-proxy can go at any time:
//
//	a packet                     why nothing happens to it
//	of an established connection its translation is conntrack's, of whichever rules it came
//	of a new one                 chains for NAT of one hook are called one after the other
//	                             until one has translated: nobody translates twice
//	that the others translated   what rejects or drops looks for addresses of Services
//	                             after translation, where an endpoint is
//	that the others marked       the same bit asks for masquerading; the chain that sees it
//	                             first masquerades and takes it back
//
// What is to go is found by name. Of iptables that are kube-proxy's chains and the jumps
// to them from built-in chains; all other rules stay, and the chains that they lead to.
// The mode ipvs is looked for only where its interface is.
package syncer

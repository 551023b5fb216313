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
//     frontend, an unchanged service port no batch at all. A service port of very many
//     endpoints can be told by what differs (Change.Delta); then nobody looks at the others,
//     neither to compile it nor to plan the batch.
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
// the new ones. Only where there is nothing of ours yet, or where the socket's send
// buffer is too small (in a user namespace net.core.wmem_max bounds
// it), is it done in several batches.
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
// A flow is one to a NodePort if its destination is an address on which NodePorts are
// open, and no frontend has this very address and port. The same port of other hosts is
// none of ours, though their flows may pass through this node. When an address comes,
// flows to it are judged: they may be older than the rules.
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
// # Session affinity
//
// Rules remember clients in maps of their own, and each connection renews that: a client
// that keeps coming would be led to an endpoint that is gone for ever. So Affinity
// deletes such elements beside the syncs:
//
//   - Only maps are read whose endpoints in use have become fewer, and all after a full
//     write: what happened while no daemon ran is made good.
//   - A map is read as a stream; only clients that have to be forgotten are kept in mind.
//     They are deleted in small batches, and the map is read again until it comes out
//     without one: clients that come meanwhile may have made the dump leave some out.
//   - An endpoint that is back keeps its clients: the newest endpoints decide, up to the
//     deletion.
//   - A map that is gone needs nothing. Every other failure is repeated, less and less
//     often.
//
// A full write keeps these maps, if they are wanted still, and what they remember.
//
// # The way to the kernel
//
// A change of one endpoint is one message and two system calls, and its cost is that of
// the kernel:
//
//   - Elements are written straight into the buffer that is sent; google/nftables makes
//     the messages about everything else.
//   - Only the last message is answered, and those that the kernel refuses.
//   - The kernel has done its work, and has answered, when the batch is sent. So the
//     socket is not among those that the Go runtime polls, which would wake a thread of it
//     for each answer.
//
// # Addresses
//
// NodePorts are served on addresses of this node, which come and go. Addresses
// subscribes to their notifications, and dumps them first and after every burst of
// these: a dump is always the truth of some moment after the change, in whatever order
// they came, and there are few addresses. A dump that failed or was interrupted is never
// used; the last good set stays.
//
// # Monitor
//
// Another program may change our tables: an administrator with `nft flush ruleset`.
// Monitor subscribes to the notifications of nf_tables and tells of every transaction
// that touched our tables and is not ours.
//
//   - A notification carries the port ID of the socket that committed. All netfilter
//     sockets of this process are ours; they are found among its file descriptors. The
//     process ID that comes with a new generation is that of a thread, and counts in the
//     initial PID namespace, so that a process in a container cannot compare it.
//   - A socket filter drops what comes from our sockets, but for new generations: a large
//     batch of ours makes more notifications than the receive buffer holds, and whoever
//     writes everything again because notifications were lost would do so for ever.
//   - A port ID may go to another process once its socket is closed. So it is looked at
//     again with each generation, which is never dropped.
//   - Messages about other tables are not decoded.
//
// What remains is that the kernel makes notifications as soon as anybody listens: about
// 2.5 µs for a batch of one element, 1.4 µs for each element of a large one (see
// BenchmarkMonitor). So nobody listens while a large batch of ours is applied
// (Monitor.Quiet); the number of generations says whether another program has committed
// meanwhile.
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

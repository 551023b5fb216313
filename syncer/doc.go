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
package syncer

// Package bench is `nftproxy bench`: how long the rules take to follow the objects, on
// this machine's kernel, in a private network namespace.
//
//	Spec, seed -> Cluster: Services, EndpointSlices
//	                 |          Stream: changes of it
//	                 v             v
//	              slim objects, made before the clock runs
//	                       |  <- the event: the clock starts
//	                       v
//	              proxier.Proxier -> syncer.Syncer -> syncer.Netlink -> kernel
//	                       |  <- OnSync, the kernel has answered: the clock stops
//	                       v
//	              UpdateResult: table, JSON, report
//
// It is the whole daemon that runs, with its care of conntrack, session affinity,
// addresses and foreign changes. The same Spec makes the same objects and the same
// changes, whatever the machine.
//
// # What is measured
//
// Latency is from just before Handler.Apply takes the changed objects until the sync that
// brought them into the kernel has its last answer. Operations, verdicts and bytes are
// those of that sync. With a rate the changes come when they are due, whether the ones
// before are done or not, so that one that is slow makes those after it wait, and several
// may share a sync. Who reaches 99 % of the rate, until the last change is in the kernel,
// has kept up.
//
// CPU is user and kernel time of all threads (getrusage) from the first change to the
// last answer, with the little that it takes to hand the changes over. Changes are made up
// in chunks of 1,000 between which the clocks stand; at a rate, all up to 100,000 before the
// first one, so that there is no pause to catch up in.
//
// Memory is the resident set of the process (/proc/self/statm) after a garbage collection
// that gives what is free back to the kernel. The cluster is not in it: it is a formula,
// and keeps some 40 bytes for each Service and the endpoints of those that have changed;
// its objects are garbage once they are converted. The program itself is in it, and told
// separately too. The kernel's memory for the rules is not.
//
// The heap is what the collector of garbage leaves after the first sync (runtime.MemStats,
// HeapAlloc): what the daemon keeps for the cluster, without stacks and code.
//
// # JSON
//
// The fields of results in JSON have stable names: UpdateFields, CompareFields and
// DataplaneFields say what they are, and `--help` shows that. `bench scale` prints what
// `bench update` does for every size, in sizes.
//
// Bytes are an upper estimate, as syncer.Batch has it. A verdict is an element operation
// that makes the kernel validate the whole table: these alone cost more in a larger
// cluster.
//
// # Comparison
//
// `bench compare` knows proxies from outside alone, so that it is the same for all:
//
//	apiserver: the cluster, and the probe's Service with one of two endpoints
//	    |  <- the event: the endpoint is replaced by the other one
//	    v
//	the proxy, a process in this namespace ----> kernel
//	                                              |  <- the next generation of nftables
//	probe: connects through the ClusterIP --------'  <- the new endpoint answers
//
// Each proxy runs in a process, a network namespace and with an API server of its own,
// one after the other. Both get the same KubeProxyConfiguration, in which no time has to
// pass between syncs. What is measured includes the way from the API server, and the
// probe's pauses, of 0.1 ms or 2 % of the latency. The first sync is from the start of
// the process to the first connection that is answered, to 20 ms or 4 %; the probe's
// Service is the last in the order of names. Processor time is that of the process and of those that it has
// started (/proc/PID/stat, in ticks of 10 ms); memory is as the process left it.
//
// # Dataplane
//
// `bench dataplane` runs a proxy in the same way, and makes new connections to the
// endpoint of the probe's Service, direct and through the ClusterIP, in rounds that begin
// with the one and the other in turn. Each way has a client address of its own, of a
// pod; conntrack sees both.
package bench

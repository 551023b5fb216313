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
// may share a sync.
//
// CPU is user and kernel time of all threads (getrusage) from the first change to the
// last answer. Changes are made up in chunks of 1,000 between which the clocks stand.
//
// Memory is the resident set of the process (/proc/self/statm) after a garbage collection
// that gives what is free back to the kernel. The cluster is not in it: it is a formula,
// and keeps some 40 bytes for each Service and the endpoints of those that have changed;
// its objects are garbage once they are converted. The program itself is in it, and told
// separately too. The kernel's memory for the rules is not.
//
// # JSON
//
// `bench update -o json` prints an UpdateResult, whose names are stable:
//
//	services, endpoints        at the beginning
//	shape, seed, families
//	first_sync_seconds         from the first object to the kernel's last answer
//	first_sync_cpu_seconds, first_sync_operations, first_sync_bytes, first_sync_batches
//	rss_bytes                  resident memory at the end
//	rss_empty_bytes            the same without a cluster
//	cpu_seconds                of all changes, of which cpu_user_seconds, cpu_kernel_seconds
//	changes_seconds            how long they took
//	rate, rate_reached, syncs
//	changes.<kind>.count
//	changes.<kind>.p50_us, p90_us, p99_us, max_us
//	changes.<kind>.operations_p50, operations_max, verdicts_p50, bytes_p50, bytes_max
//	machine.version, go, kernel, cpu, cpus, load_average, user_namespace
//
// `bench scale -o json` prints a ScaleResult: the same for every size, in sizes.
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
// `bench compare -o json` prints a CompareResult, whose names are stable:
//
//	services, endpoints, shape, seed, machine
//	proxies[].name, command, services, endpoints, machine
//	proxies[].first_sync_seconds, first_sync_cpu_seconds
//	proxies[].cpu_seconds, rss_bytes
//	proxies[].nftables.count, p50_us, p90_us, p99_us, max_us, all_us
//	proxies[].packet.count, p50_us, p90_us, p99_us, max_us, all_us
//
// # Dataplane
//
// `bench dataplane` runs a proxy in the same way, and makes new connections to the
// endpoint of the probe's Service, direct and through the ClusterIP, in rounds that begin
// with the one and the other in turn. Each way has a client address of its own, of a
// pod; conntrack sees both.
//
// `bench dataplane -o json` prints a DataplaneResult, whose names are stable:
//
//	runs[].name, services, endpoints, machine
//	runs[].direct.count, failed, per_second, p50_us, p99_us
//	runs[].cluster_ip.count, failed, per_second, p50_us, p99_us
//	runs[].relative            of the connections a second, median of the rounds
package bench

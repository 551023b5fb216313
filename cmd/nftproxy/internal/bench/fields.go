package bench

// The fields of results in JSON, for those who read them: a name, or several with the
// same beginning, and what it is. [] is every element of a list, KIND every kind of change.
// The names are stable: they are neither changed nor dropped.
const (
	machineFields = `
  machine.version, go, kernel            of nftproxy; its compiler; the kernel's release
  machine.cpu, cpus                      model, and how many the program may use
  machine.load_average                   of the minute before: what else ran
  machine.user_namespace                 whether sysctls bounded a batch`

	// UpdateFields are those of an UpdateResult.
	UpdateFields = `
  services, endpoints                    at the beginning; a dual-stack endpoint counts once
  shape, seed, families                  families: IP families of the node
  first_sync_seconds                     from the first object to the kernel's last answer
  first_sync_per_service_us              the same, divided by the Services
  first_sync_cpu_seconds                 user and kernel
  first_sync_operations                  elements and objects, such as chains
  first_sync_bytes, first_sync_batches   bytes: an upper estimate
  rss_bytes                              resident memory at the end, without garbage
  rss_empty_bytes                        the same before the cluster was there
  heap_bytes                             heap in use after the first sync, without garbage
  heap_empty_bytes                       the same before the cluster was there
  heap_per_service_bytes                 the difference, divided by the Services
  changes_seconds                        how long all changes took
  cpu_seconds                            of all changes, user and kernel
  cpu_user_seconds, cpu_kernel_seconds   the parts of it
  cpu_seconds_per_1000_changes           cpu_seconds by change, times 1,000
  core_share                             cpu_seconds by changes_seconds; 1: one core busy
  rate, rate_reached                     changes a second that were asked for, 0 for as many
                                         as possible, and those reached
  kept_up                                whether 99 % of the rate were reached
  syncs                                  how many the changes took; several may share one
  changes.KIND.count                     changes of a kind
  changes.KIND.p50_us, p90_us, p99_us, max_us
                                         from the changed object to the kernel's answer
  changes.KIND.operations_p50, operations_max
                                         of the sync that took the change
  changes.KIND.verdicts_p50              of these, elements that carry a verdict
  changes.KIND.bytes_p50, bytes_max      to the kernel, an upper estimate` + machineFields

	// CompareFields are those of a CompareResult.
	CompareFields = `
  services, endpoints, shape, seed       the cluster that both had, the first of several
  proxies[].name, command                nftproxy and then the peer, for every cluster
  proxies[].services, endpoints          the cluster
  proxies[].first_sync_seconds           from the start of the process to the first
                                         connection through a ClusterIP
  proxies[].first_sync_cpu_seconds       user and kernel, until it was idle
  proxies[].cpu_seconds                  of all changes, user and kernel
  proxies[].cpu_user_seconds, cpu_kernel_seconds
                                         the parts of it
  proxies[].rss_bytes                    resident memory at the end, as the process left it
  proxies[].nftables.count               changes seen by nftables; 0 in other modes
  proxies[].nftables.p50_us, p90_us, p99_us, max_us
                                         from the API server to the next generation
  proxies[].nftables.all_us              all of them, sorted
  proxies[].packet.count                 changes seen by connections
  proxies[].packet.p50_us, p90_us, p99_us, max_us
                                         from the API server to the first connection that the
                                         new endpoint answers
  proxies[].packet.all_us                all of them, sorted
  proxies[].machine                      as machine` + machineFields

	// DataplaneFields are those of a DataplaneResult.
	DataplaneFields = `
  runs[].name, services, endpoints       the proxy and the cluster
  runs[].direct.count, failed            connections to the endpoint that were answered, and
                                         that were not within a second
  runs[].direct.per_second               those answered
  runs[].direct.p50_us, p99_us           from the first packet to the answer
  runs[].cluster_ip.count, failed        the same through the ClusterIP
  runs[].cluster_ip.per_second, p50_us, p99_us
  runs[].relative                        of the connections a second, through the ClusterIP by
                                         direct: median of the rounds
  runs[].machine.version, go, kernel, cpu, cpus, load_average, user_namespace`
)

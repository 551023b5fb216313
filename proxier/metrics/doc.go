// Package metrics holds the Prometheus metrics of the proxy: those of kube-proxy
// 1.37 in nftables mode, under its names and with its labels, types and buckets, so
// that dashboards and alerts go on to work, and those of nftproxy itself.
//
// The registry belongs to a [Metrics] and not to the process. What the sync loop
// calls takes plain values, finds its series without a look-up of labels and does not
// allocate. A sync of ours covers both families: it is observed once for each family
// that it changed.
//
//	name                                                         type       labels
//	kubeproxy_sync_proxy_rules_duration_seconds                  histogram  ip_family
//	    Of every sync, failed ones too.
//	kubeproxy_sync_full_proxy_rules_duration_seconds             histogram  ip_family
//	    Of those that wrote the whole ruleset.
//	kubeproxy_sync_partial_proxy_rules_duration_seconds          histogram  ip_family
//	    Of the others.
//	kubeproxy_sync_proxy_rules_last_timestamp_seconds            gauge      ip_family
//	    When the last sync succeeded, in Unix time.
//	kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds     gauge      ip_family
//	    When the last sync was asked for, in Unix time.
//	kubeproxy_network_programming_duration_seconds               histogram  ip_family
//	    From the change of a pod or Service, as the EndpointSlice's annotation
//	    endpoints.kubernetes.io/last-change-trigger-time says it, to its rules.
//	kubeproxy_sync_proxy_rules_endpoint_changes_pending          gauge
//	    EndpointSlices whose changes wait for a sync.
//	kubeproxy_sync_proxy_rules_endpoint_changes_total            counter
//	kubeproxy_sync_proxy_rules_service_changes_pending           gauge
//	    Services whose changes wait for a sync.
//	kubeproxy_sync_proxy_rules_service_changes_total             counter
//	kubeproxy_sync_proxy_rules_no_local_endpoints_total          gauge      ip_family traffic_policy
//	    Service ports with policy Local, internal or external, that have usable
//	    endpoints, but none on this node.
//	kubeproxy_sync_proxy_rules_nftables_sync_failures_total      counter    ip_family
//	kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total   counter    ip_family
//	    Failures to remove what an earlier ruleset, or kube-proxy, has left behind.
//	kubeproxy_proxy_healthz_total                                counter    code
//	kubeproxy_proxy_livez_total                                  counter    code
//	kubeproxy_conntrack_reconciler_sync_duration_seconds         histogram  ip_family
//	    Of passes over the conntrack table.
//	kubeproxy_conntrack_reconciler_deleted_entries_total         counter    ip_family
//
//	nftproxy_batch_operations_total                              counter    kind
//	    What was committed: an element without a verdict (kind element), one with a
//	    verdict (verdict: the kernel validates the whole table for it), a table, set,
//	    chain or rule (object).
//	nftproxy_commit_duration_seconds                             histogram
//	    From handing a batch to the kernel to its last answer; of batches that it took.
//	nftproxy_kernel_errors_total                                 counter    cause
//	    Requests that failed: refused (the kernel said no), forbidden, too_large (not
//	    sent), unknown (an answer is missing).
//	nftproxy_resyncs_total                                       counter    reason
//	    Writes of the whole ruleset: start, periodic, failure (the sync before failed),
//	    foreign_change (another program had changed our tables).
//	nftproxy_foreign_changes_repaired_total                      counter
//	nftproxy_installed_service_ports                             gauge      ip_family
//	nftproxy_installed_elements                                  gauge      ip_family
//	    What is in the kernel.
//	nftproxy_queue_duration_seconds                              histogram
//	    How long the oldest change of a sync waited for it to begin.
//	nftproxy_skipped_objects_total                               counter    reason
//	    Objects, or parts of them, that cannot be used, by the reason of their Event.
//	nftproxy_bad_annotations_total                               counter
//	    Annotations of ours that could not be read.
//
//	kubernetes_build_info                                        gauge      of component-base
//	    Always 1; the labels say which build this is.
//	go_*, process_*                                              the usual ones
//
// Those of the client that talks to the API server are client-go's, once
// [Metrics.RegisterRESTClient] was called. Those of credential plugins are left out.
//
//	rest_client_request_duration_seconds                         histogram  host verb
//	rest_client_request_size_bytes                               histogram  host verb
//	rest_client_response_size_bytes                              histogram  host verb
//	rest_client_rate_limiter_duration_seconds                    histogram  host verb
//	rest_client_requests_total                                   counter    code host method
//	rest_client_request_retries_total                            counter    code host verb
//	rest_client_transport_cache_entries                          gauge
//	rest_client_transport_create_calls_total                     counter    result
//	rest_client_transport_cache_gc_calls_total                   counter    result
//	rest_client_transport_ca_reload_total                        counter    reason result
//	rest_client_transport_cert_rotation_gc_calls_total           counter
//
// What kube-proxy has only behind the gate of localhost NodePorts, and the metrics of
// informers, workqueues and feature gates, which do not exist here, are left out.
//
// Histograms are native ones too, as those of kube-proxy are: a scraper that asks for
// them gets them instead of the buckets.
package metrics

// Package zpages serves what people and tools read to see inside of the process: the
// metrics, and the pages that every component of Kubernetes has beside them.
//
//	/metrics          the metrics, in the formats of Prometheus
//	/healthz          "ok": the process answers; so does /healthz/ping
//	/proxyMode        "nftables", as kube-proxy says it
//	/configz          the configuration, JSON under the key kubeproxy.config.k8s.io
//	/statusz          since when which version runs
//	/flagz            the values of all flags
//	/debug/pprof/     profiles of the process, if that is enabled
//
// There is no authentication: the address should be one that only the node reaches.
package zpages

// Package healthcheck tells load balancers and the kubelet how it goes.
//
// [ProxyHealth] answers for the whole proxy: /healthz, whether this node should get
// traffic from outside, and /livez, whether the process works. [ServiceHealth] answers
// for one Service each, on the port spec.healthCheckNodePort of load balancers with
// externalTrafficPolicy Local: whether this node has endpoints of it.
//
// Answers have the headers, fields and status codes of kube-proxy. They differ in
// this:
//
//   - The proxy is not healthy before its first sync has succeeded. kube-proxy is
//     until a change has waited for too long, and so gets traffic for rules that are not
//     there.
//   - A change that comes during a sync counts from when it came. With kube-proxy the
//     end of the sync forgets it.
//   - A Service that is gone is a 503 while its port is being closed, not an empty 200.
package healthcheck

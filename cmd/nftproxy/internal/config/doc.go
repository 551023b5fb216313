// Package config reads kube-proxy's configuration, from a file of the type
// KubeProxyConfiguration kubeproxy.config.k8s.io/v1alpha1 or from kube-proxy's
// flags, so that nftproxy can take the place of kube-proxy with what is there.
//
//	file  --decode--\
//	                 v1alpha1 --defaults--> --resolve--> Config
//	flags ----------/                                  |
//	                     the node, once it is known --Check--> what does not fit
//
// Defaults and rules are those of kube-proxy 1.37 in mode nftables, with these
// exceptions:
//
//   - The mode does not select anything: whoever starts this program has chosen.
//     In a file of another mode than nftables, iptables.masqueradeAll and
//     iptables.masqueradeBit count as those of the section nftables, so that a
//     cluster keeps what it ran with.
//   - There is no minimum sync period unless one is set.
//   - Where the node's IP of a family is not known, NodePorts of nodePortAddresses
//     "primary" are closed in that family, not open on all addresses.
//   - What has no meaning here is accepted, and named in a warning if it is set.
package config

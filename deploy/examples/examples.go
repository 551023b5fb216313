// Package examples holds manifests to learn from and to try nftproxy with: a small
// shop, and the cluster's DNS. `nftproxy demo` runs on them.
//
// They are valid for a real API server whose ranges of ClusterIPs contain
// 10.96.0.0/16 and fd00:10:96::/112, as kubeadm sets them up.
package examples

import "embed"

// Files are the manifests.
//
//go:embed *.yaml
var Files embed.FS

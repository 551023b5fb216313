// Package demo is `nftproxy demo`: the real daemon on example manifests, in a private
// user and network namespace, with real servers and real connections.
//
//	sandbox.Launch: outside, clones this program into the namespaces
//	   |
//	Run: inside
//	   |-- the daemon, on a folder with the manifests
//	   |-- pods: an address on lo, with a server for each port
//	   |-- clients: connect to ClusterIPs, and count who answers
//	   '-- rollout: changes the manifests as an operator would, by new files
//
// All of it is in one network namespace, with all addresses on lo. Connections are
// translated in the hook nat-output, as for any client on a node itself.
package demo

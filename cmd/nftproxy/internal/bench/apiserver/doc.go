// Package apiserver is a small Kubernetes API server: enough for the reflectors of a
// Service proxy, and fast.
//
//	Put, Delete -> store: objects, and the log of all events since the beginning
//	                 |
//	                 v
//	GET list, watch (bookmarks, WatchList), in JSON or protobuf
//
// It serves Services, EndpointSlices, Nodes and ServiceCIDRs, with label and field
// selectors, and single objects by name. What is created by a client, such as Events and
// TokenReviews, is answered as if it had been, and forgotten. Everything else is not
// found. There is no authentication: it is for a private network namespace.
//
// A list is always whole, whatever limit is asked for, and always the newest: API servers
// may do both. The log is never cut, so no watch is ever too old.
package apiserver

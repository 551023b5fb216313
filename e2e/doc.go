// Package e2e tests the built programs from end to end: a real API server, real
// network namespaces, real packets. All of it is in the tests; README.md says
// how to run them.
package e2e

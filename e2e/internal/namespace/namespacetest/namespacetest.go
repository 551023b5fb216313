// Package namespacetest makes network namespaces for tests.
package namespacetest

import (
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// New makes a namespace in which only the loopback interface is up. It is closed at the
// end of the test.
func New(t testing.TB, name string) *namespace.Namespace {
	t.Helper()
	ns, err := namespace.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	})
	return ns
}

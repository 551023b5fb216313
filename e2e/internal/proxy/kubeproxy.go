package proxy

import (
	"errors"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

// kubeProxy is the peer.
type kubeProxy struct{ options Options }

// NewKubeProxy returns kube-proxy in nftables mode; it does not run yet.
func NewKubeProxy(options Options) (*Proxy, error) {
	if options.Kubeconfig == "" {
		return nil, errors.New("kube-proxy reads objects from an API server only")
	}
	return newProxy(options, kubeProxy{options}), nil
}

func (k kubeProxy) defaults() map[string]any {
	return object.Merge(defaults(k.options), map[string]any{
		// By default it waits for up to a second, so as to do many changes at once.
		"nftables": map[string]any{"minSyncPeriod": "10ms"},
	})
}

func (k kubeProxy) args(file string) []string { return []string{"--config", file} }

// checkExit accepts everything: kube-proxy leaves SIGTERM to the kernel.
func (k kubeProxy) checkExit(int) error { return nil }

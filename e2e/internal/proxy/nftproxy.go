package proxy

import "fmt"

// nftProxy is the proxy under test.
type nftProxy struct{ options Options }

// NewNFTProxy returns nftproxy; it does not run yet.
func NewNFTProxy(options Options) *Proxy { return newProxy(options, nftProxy{options}) }

func (n nftProxy) defaults() map[string]any { return defaults(n.options) }

func (n nftProxy) args(file string) []string {
	args := []string{"run", "--config", file}
	if n.options.Manifests != "" {
		args = append(args, "--manifests", n.options.Manifests)
	}
	return args
}

// checkExit wants an orderly end.
func (n nftProxy) checkExit(code int) error {
	if code != 0 {
		return fmt.Errorf("nftproxy ended with exit code %d", code)
	}
	return nil
}

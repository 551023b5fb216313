package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// nftProxy is the proxy under test.
type nftProxy struct {
	options Options
	// readsConfig tells that the program has the flag --config.
	readsConfig bool
}

// NewNFTProxy returns nftproxy; it does not run yet.
func NewNFTProxy(ctx context.Context, options Options) (*Proxy, error) {
	help, err := options.Namespace.Command(ctx, "", options.Program, "run", "--help")
	if err != nil {
		return nil, fmt.Errorf("ask nftproxy for its flags: %w", err)
	}
	return newProxy(options, nftProxy{options: options, readsConfig: strings.Contains(help, "--config ")}), nil
}

func (n nftProxy) defaults() map[string]any { return defaults(n.options) }

func (n nftProxy) args(file string, changed map[string]any) ([]string, error) {
	args := []string{"run", "--hostname-override", n.options.Node}
	if n.options.Manifests != "" {
		args = append(args, "--manifests", n.options.Manifests)
	} else {
		args = append(args, "--kubeconfig", n.options.Kubeconfig)
	}
	switch {
	case n.readsConfig:
		return append(args, "--config", file), nil
	case len(changed) > 0:
		return nil, errors.New("this nftproxy does not read a configuration file")
	default:
		return append(args, "--cluster-cidr", clusterCIDRs), nil
	}
}

// checkExit wants an orderly end.
func (n nftProxy) checkExit(code int) error {
	if code != 0 {
		return fmt.Errorf("nftproxy ended with exit code %d", code)
	}
	return nil
}

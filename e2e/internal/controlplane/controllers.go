package controlplane

import (
	"fmt"
	"path/filepath"

	"github.com/nftproxy/nftproxy/e2e/internal/process"
)

// StartControllers starts kube-controller-manager with the one controller that makes
// EndpointSlices of Services and Pods. Whether it works shows in what it makes. Stop ends
// it; it survives outages of the API server.
func (c *ControlPlane) StartControllers(program string) error {
	manager, err := process.Start(c.ns, process.Config{
		Path: program,
		Args: []string{
			"--kubeconfig=" + c.Kubeconfig(),
			"--controllers=endpointslice-controller",
			"--leader-elect=false",
			"--secure-port=0",
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		},
		LogFile: filepath.Join(c.options.LogDir, "kube-controller-manager.log"),
	})
	if err != nil {
		return fmt.Errorf("start the controllers: %w", err)
	}
	c.manager = manager
	return nil
}

// ProxyKubeconfig writes a kubeconfig file with the rights of kube-proxy and nothing
// more: those of the user system:kube-proxy, to whom every API server gives the
// ClusterRole system:node-proxier. It returns the path.
func (c *ControlPlane) ProxyKubeconfig() (string, error) {
	path := filepath.Join(c.options.Dir, "proxy.kubeconfig")
	return path, c.writeKubeconfig(path, c.address(), c.proxy)
}

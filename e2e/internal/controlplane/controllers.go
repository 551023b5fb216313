package controlplane

import (
	"fmt"
	"path/filepath"

	"github.com/nftproxy/nftproxy/e2e/internal/process"
)

// StartControllers starts kube-controller-manager with the controllers that make Pods of
// Deployments, and EndpointSlices of Services and Pods. Whether they work shows in what
// they make. Stop ends them; they survive outages of the API server.
func (c *ControlPlane) StartControllers(program string) error {
	manager, err := process.Start(c.ns, process.Config{
		Path: program,
		Args: []string{
			"--kubeconfig=" + c.Kubeconfig(),
			"--controllers=endpointslice-controller,deployment-controller,replicaset-controller",
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

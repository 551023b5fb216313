package proxier

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// NewClient returns a client of the API server that the current context of the
// kubeconfig file names, or of the one of the cluster that this program runs in if
// the path is empty.
func NewClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "nftproxy"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS, config.Burst = 10, 20 // there are four long requests, and their retries
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the API server at %s: %w: correct the kubeconfig file", config.Host, err)
	}
	return client, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w: run as a pod with a service account, or give the path of a kubeconfig file", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig file %s: %w: give the path of a valid one", kubeconfig, err)
	}
	return config, nil
}

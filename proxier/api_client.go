package proxier

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ClientOptions say how to reach the API server. The zero value is the server of the
// cluster that this program runs in.
type ClientOptions struct {
	// Kubeconfig is the path of a kubeconfig file, whose current context counts. Master
	// is the server's URL, which comes before that of the file.
	Kubeconfig, Master string
	// ContentType is the media type of requests, empty for protobuf; AcceptContentTypes
	// are those of answers, empty for that type and JSON.
	ContentType, AcceptContentTypes string
	// QPS is how many requests a second may be sent in the long run, Burst how many at
	// once. 0: enough for the watches and Events of a proxy.
	QPS   float32
	Burst int
}

// The requests of a proxy are four watches, their retries and a few Events.
const (
	defaultQPS   = 10
	defaultBurst = 20
)

// NewClient returns a client of the API server. An error says what is missing.
func NewClient(opts ClientOptions) (kubernetes.Interface, error) {
	config, err := restConfig(opts.Kubeconfig, opts.Master)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "nftproxy"
	config.ContentType = cmp.Or(opts.ContentType, runtime.ContentTypeProtobuf)
	config.AcceptContentTypes = cmp.Or(opts.AcceptContentTypes, config.ContentType+","+runtime.ContentTypeJSON)
	config.QPS, config.Burst = cmp.Or(opts.QPS, defaultQPS), cmp.Or(opts.Burst, defaultBurst)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client for the API server at %s: %w: correct the kubeconfig file", config.Host, err)
	}
	return client, nil
}

func restConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w: run as a pod with a service account, or give the path of a kubeconfig file", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig file %s: %w: give the path of a valid one", kubeconfig, err)
	}
	return config, nil
}

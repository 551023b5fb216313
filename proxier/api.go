package proxier

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// What the API server is asked for, the same as kube-proxy: the Services of other
// proxies and headless ones never arrive, and one that becomes such a Service
// arrives as a deletion. Of the Nodes only this node's arrives.
const (
	serviceLabels = "!" + labelServiceProxyName
	serviceFields = "spec.clusterIP!=" + corev1.ClusterIPNone
	sliceLabels   = "!" + corev1.IsHeadlessService
)

// API is the Source that watches a Kubernetes API server.
//
// A reflector for each kind lists and watches, and hands every object, already
// converted, straight to the handler. There is no informer in between: its store
// would hold a second copy of every object of the cluster, and its queues would
// only put goroutines between the watch and the handler.
type API struct {
	client   kubernetes.Interface
	nodeName string
	log      *zap.Logger
	clock    clock.WithTicker
}

// NewAPI returns a source that watches with the client, takes the endpoints on that
// node as local, and delivers its Node.
func NewAPI(client kubernetes.Interface, nodeName string, log *zap.Logger) *API {
	return &API{client: client, nodeName: nodeName, log: log, clock: clock.RealClock{}}
}

// Run implements [Source]. An API server that cannot be reached, at the start or
// later, is no reason to return: Run tries again until the context is done and
// says so in the log; the handler keeps what it has got. One that does not let the
// Node or ServiceCIDRs be read delays Synced by optionalWait, and no more.
func (a *API) Run(ctx context.Context, h Handler) error {
	required, optional := []string{kindService, kindSlice}, []string{kindNode, kindServiceCIDR}
	health := newAPIHealth(a.log, a.clock, serverOf(a.client), required, optional)
	out := newAPIOutput(h, required, optional)
	var running sync.WaitGroup
	running.Go(func() { health.run(ctx) })
	running.Go(func() { out.await(ctx, a.clock, health.without) })
	for _, k := range a.kinds() {
		running.Go(func() { a.reflect(ctx, k, out, health) })
	}
	running.Wait()
	return nil
}

// apiKind is a kind of objects, and how the API server is asked for those that
// matter.
type apiKind struct {
	name    string
	example runtime.Object
	lw      *cache.ListWatch
}

func (a *API) kinds() []apiKind {
	thisNode := fields.OneTermEqualSelector(metav1.ObjectNameField, a.nodeName).String()
	core, everywhere := a.client.CoreV1(), metav1.NamespaceAll
	services, slices := core.Services(everywhere), a.client.DiscoveryV1().EndpointSlices(everywhere)
	nodes, cidrs := core.Nodes(), a.client.NetworkingV1().ServiceCIDRs()
	log := func(kind string) *zap.Logger { return a.log.With(zap.String("kind", kind)) }
	return []apiKind{
		{kindService, &corev1.Service{}, listWatch(services, serviceLabels, serviceFields, log(kindService))},
		{kindSlice, &discoveryv1.EndpointSlice{}, listWatch(slices, sliceLabels, "", log(kindSlice))},
		{kindNode, &corev1.Node{}, listWatch(nodes, "", thisNode, log(kindNode))},
		{kindServiceCIDR, &networkingv1.ServiceCIDR{}, listWatch(cidrs, "", "", log(kindServiceCIDR))},
	}
}

// reflect keeps the handler up to date about one kind until the context is done.
func (a *API) reflect(ctx context.Context, k apiKind, out *apiOutput, health *apiHealth) {
	ctx = klog.NewContext(ctx, health.clientLogger(k.name))
	var pending sync.WaitGroup
	defer pending.Wait()
	a.reflector(k, out, health, endingClock{a.clock, ctx.Done(), &pending}).RunWithContext(ctx)
}

func (a *API) reflector(k apiKind, out *apiOutput, health *apiHealth, c clock.Clock) *cache.Reflector {
	logger := health.clientLogger(k.name)
	return cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(health.observe(k.name, k.lw), a.client),
		k.example,
		newAPIStore(k.name, a.nodeName, out, health),
		cache.ReflectorOptions{Name: k.name, Logger: &logger, Clock: c},
	)
}

// kindList is a list of objects of any kind.
type kindList interface {
	runtime.Object
	metav1.ListInterface
}

// kindClient is what a typed client of any kind has; L is the kind's list.
type kindClient[L kindList] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// listWatch lists and watches what the selectors select.
func listWatch[L kindList](client kindClient[L], labelSelector, fieldSelector string, log *zap.Logger) *cache.ListWatch {
	list := func(ctx context.Context, o metav1.ListOptions) (L, error) {
		o.LabelSelector, o.FieldSelector = labelSelector, fieldSelector
		return client.List(ctx, o)
	}
	past := &apiPast{log: log, newest: func(ctx context.Context) (string, error) {
		// Without a version, the answer is as new as anything that any API server has
		// sent. It is one object, with the selectors so as to need no other rights.
		one, err := list(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return one.GetResourceVersion(), nil
	}}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := past.list(ctx, o); err != nil {
				return nil, err
			}
			all, err := list(ctx, o)
			if err != nil {
				return nil, err
			}
			past.listed(all.GetResourceVersion())
			return all, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := past.watch(ctx, o); err != nil {
				return nil, err
			}
			o.LabelSelector, o.FieldSelector = labelSelector, fieldSelector
			return client.Watch(ctx, o)
		},
	}
}

package proxier

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// What the API server is asked for, the same as kube-proxy: the Services of other
// proxies and headless ones never arrive, and one that becomes such a Service
// arrives as a deletion.
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

// NewAPI returns a source that watches with the client, and takes the endpoints
// on that node as local.
func NewAPI(client kubernetes.Interface, nodeName string, log *zap.Logger) *API {
	return &API{client: client, nodeName: nodeName, log: log, clock: clock.RealClock{}}
}

// Run implements [Source]. An API server that cannot be reached, at the start or
// later, is no reason to return: Run tries again until the context is done and
// says so in the log; the handler keeps what it has got.
func (a *API) Run(ctx context.Context, h Handler) error {
	health := newAPIHealth(a.log, a.clock, serverOf(a.client), kindService, kindSlice)
	out := &apiOutput{handler: h, unlisted: map[string]bool{kindService: true, kindSlice: true}}
	var running sync.WaitGroup
	running.Go(func() { health.run(ctx) })
	running.Go(func() { a.reflect(ctx, kindService, &corev1.Service{}, a.services(), out, health) })
	running.Go(func() { a.reflect(ctx, kindSlice, &discoveryv1.EndpointSlice{}, a.slices(), out, health) })
	running.Wait()
	return nil
}

// reflect keeps the handler up to date about one kind until the context is done.
func (a *API) reflect(ctx context.Context, kind string, example runtime.Object, lw *cache.ListWatch, out *apiOutput, health *apiHealth) {
	logger := health.clientLogger(kind)
	ctx = klog.NewContext(ctx, logger)
	var pending sync.WaitGroup
	defer pending.Wait()
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(health.observe(kind, lw), a.client),
		example,
		newAPIStore(kind, a.nodeName, out, health),
		cache.ReflectorOptions{Name: kind, Logger: &logger, Clock: endingClock{a.clock, ctx.Done(), &pending}},
	).RunWithContext(ctx)
}

func (a *API) services() *cache.ListWatch {
	services := a.client.CoreV1().Services(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = serviceLabels, serviceFields
			return services.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = serviceLabels, serviceFields
			return services.Watch(ctx, o)
		},
	}
}

func (a *API) slices() *cache.ListWatch {
	slices := a.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = sliceLabels
			return slices.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = sliceLabels
			return slices.Watch(ctx, o)
		},
	}
}

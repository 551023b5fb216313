package healthcheck

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/httpserver"
)

// Service is what a load balancer can ask about a Service.
type Service struct {
	// Port is spec.healthCheckNodePort.
	Port uint16
	// LocalEndpoints is the number of different addresses of endpoints on this node that
	// are ready, over all ports of the Service. Endpoints that only serve because
	// there is no ready one do not count.
	LocalEndpoints int
}

// ServiceOptions are the settings of a ServiceHealth. All fields but OnListenError have
// to be set.
type ServiceOptions struct {
	// Healthy reports whether the proxy is healthy, as [ProxyHealth.Healthy] does.
	Healthy func() bool
	// OnListenError, if set, is called every time that an address of a Service cannot be
	// listened on, from the goroutine of Run.
	OnListenError func(service types.NamespacedName, addr netip.AddrPort, err error)
	Log           *zap.Logger
}

// ServiceHealth runs the servers of health-check ports. Its owner tells it what is
// wanted; Run brings that about. What a server answers is always what was told last.
type ServiceHealth struct {
	opts ServiceOptions
	wake chan struct{} // holds one token while there is something to do

	mu       sync.Mutex
	services map[types.NamespacedName]Service
	addrs    []netip.Addr
}

// NewServiceHealth returns a ServiceHealth that nothing is wanted of.
func NewServiceHealth(opts ServiceOptions) *ServiceHealth {
	return &ServiceHealth{opts: opts, wake: make(chan struct{}, 1)}
}

// Reconcile takes the Services whose ports shall be open, and the addresses to listen
// on: the unspecified address of a family for all of that family's, or the node's own.
// It does not block, and the caller must not change the arguments afterwards. What could
// not be listened on before is tried again.
func (h *ServiceHealth) Reconcile(services map[types.NamespacedName]Service, addrs []netip.Addr) {
	h.mu.Lock()
	h.services, h.addrs = services, addrs
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// socket is what one server listens on, for whom.
type socket struct {
	service types.NamespacedName
	addr    netip.AddrPort
}

func (s socket) compare(t socket) int {
	return cmp.Or(
		cmp.Compare(s.service.Namespace, t.service.Namespace),
		cmp.Compare(s.service.Name, t.service.Name),
		s.addr.Compare(t.addr),
	)
}

// runningServer is a server with what ends it.
type runningServer struct {
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs any more
}

func (s runningServer) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Run opens and closes servers until the context is done, then closes all and returns
// nil once nothing of them runs any more.
func (h *ServiceHealth) Run(ctx context.Context) error {
	running := map[socket]runningServer{}
	for {
		select {
		case <-ctx.Done():
			closeServers(running, nil)
			return nil
		case <-h.wake:
		}
		wanted := h.wanted()
		// A port may pass from one Service to another: what closes goes first.
		closeServers(running, wanted)
		for _, s := range slices.SortedFunc(maps.Keys(wanted), socket.compare) {
			if _, found := running[s]; !found {
				h.open(ctx, s, running)
			}
		}
	}
}

// wanted returns what there should be servers on.
func (h *ServiceHealth) wanted() map[socket]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[socket]bool{}
	for name, service := range h.services {
		for _, addr := range h.addrs {
			wanted[socket{name, netip.AddrPortFrom(addr.Unmap(), service.Port)}] = true
		}
	}
	return wanted
}

// closeServers ends the servers that are not wanted, all at the same time, and waits for
// them. One that has failed is not running any more either.
func closeServers(running map[socket]runningServer, wanted map[socket]bool) {
	closing := map[socket]runningServer{}
	for s, server := range running {
		if !wanted[s] || server.ended() {
			server.stop()
			closing[s] = server
		}
	}
	for s, server := range closing {
		<-server.done
		delete(running, s)
	}
}

// open adds a running server, or reports why there is none.
func (h *ServiceHealth) open(ctx context.Context, s socket, running map[socket]runningServer) {
	network := "tcp4" // a family's own, so that the unspecified addresses of both can be open
	if s.addr.Addr().Is6() {
		network = "tcp6"
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, network, s.addr.String())
	switch {
	case ctx.Err() != nil && err != nil:
		return
	case err != nil:
		h.failed(s, err)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	server := runningServer{stop: stop, done: make(chan struct{})}
	running[s] = server
	go func() {
		defer close(server.done)
		if err := httpserver.Serve(ctx, listener, h.handler(s), h.opts.Log); err != nil {
			h.opts.Log.Error("a health-check port does not answer any more", zap.Stringer("service", s.service),
				zap.Stringer("address", s.addr), zap.Error(err))
		}
	}()
}

func (h *ServiceHealth) failed(s socket, err error) {
	h.opts.Log.Warn("cannot listen on a health-check port; it is tried again with the next sync",
		zap.Stringer("service", s.service), zap.Stringer("address", s.addr), zap.Error(err))
	if h.opts.OnListenError != nil {
		h.opts.OnListenError(s.service, s.addr, err)
	}
}

// serviceAnswer is the body of an answer.
type serviceAnswer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// handler answers any request: 200 if the Service has endpoints on this node and the
// proxy is healthy, else 503. A Service that has gone, or has another port now, has
// none.
func (h *ServiceHealth) handler(s socket) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		service := h.services[s.service]
		h.mu.Unlock()
		if service.Port != s.addr.Port() {
			service = Service{}
		}
		answer := serviceAnswer{LocalEndpoints: service.LocalEndpoints, ServiceProxyHealthy: h.opts.Healthy()}
		answer.Service.Namespace, answer.Service.Name = s.service.Namespace, s.service.Name
		code := http.StatusServiceUnavailable
		if answer.LocalEndpoints > 0 && answer.ServiceProxyHealthy {
			code = http.StatusOK
		}
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(answer.LocalEndpoints))
		writeJSON(w, code, answer)
	})
}

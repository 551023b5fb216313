package healthcheck

import (
	"net/http"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// HandlerOf returns what answers on a socket of a Service.
func (h *ServiceHealth) HandlerOf(service types.NamespacedName, addr netip.AddrPort) http.Handler {
	return h.handler(socket{service, addr})
}

package proxier

import (
	"fmt"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// failedOptional notes that an optional kind is not being watched. A refusal lasts, so
// that it is told, once. Of an outage the required kinds tell.
func (h *apiHealth) failedOptional(kind string, err error) {
	h.optional[kind] = err
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
		h.tellOptional(kind)
		return
	}
	h.log.Debug("an optional kind is not being watched", zap.String("kind", kind), zap.Error(err))
}

// without notes that services begin before the first lists of these kinds.
func (h *apiHealth) without(kinds []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range kinds {
		h.tellOptional(kind)
	}
}

// tellOptional tells once, until the API server answers again, that a kind is missing.
func (h *apiHealth) tellOptional(kind string) {
	if h.told[kind] {
		return
	}
	h.told[kind] = true
	why := "no answer yet"
	if err := h.optional[kind]; err != nil {
		why = explain(err)
	}
	h.log.Warn(fmt.Sprintf("Services work without %ss from %s: %s; trying again", kind, h.server, why))
}

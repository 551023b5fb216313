package healthcheck

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/rules"
)

// ProxyOptions are the settings of a ProxyHealth.
type ProxyOptions struct {
	// Families that the proxy programs.
	Families []rules.Family
	// Timeout is how long a change may wait until it is in force; kube-proxy takes two
	// times its syncPeriod.
	Timeout time.Duration
	// Clock is the time. nil: the system's.
	Clock clock.PassiveClock
	// OnHealthz and OnLivez, if set, are called with the status code of every answer.
	OnHealthz, OnLivez func(code int)
}

// ProxyHealth knows whether the proxy keeps up with the changes that come, and whether
// the node should get traffic. A family is healthy once a sync of it has succeeded, and
// while no change has waited for Timeout or longer. With nothing to do it stays healthy.
//
// It has three reports: Queued when a change comes, Began when a sync takes all changes
// that wait, and Updated when a sync has succeeded. A sync that failed is not reported:
// its changes go on to wait.
type ProxyHealth struct {
	opts ProxyOptions

	mu       sync.Mutex
	families map[rules.Family]*familyHealth
	node     *Node
}

// familyHealth is what is known of a family. Times are zero if there is no such thing.
type familyHealth struct {
	updated time.Time // when a sync succeeded last
	queued  time.Time // when the oldest change came that no sync has taken
	taken   time.Time // when the oldest change came that a sync has taken, and that is not in force
}

// Node is what the health depends on of the Node that the proxy runs on.
type Node struct {
	// Deleting is true once the Node has a deletion timestamp, ToBeDeleted if it has the
	// taint ToBeDeletedByClusterAutoscaler, whatever its effect.
	Deleting, ToBeDeleted bool
}

// NewProxyHealth returns a ProxyHealth that no sync has been reported to.
func NewProxyHealth(opts ProxyOptions) *ProxyHealth {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	h := &ProxyHealth{opts: opts, families: map[rules.Family]*familyHealth{}}
	for _, f := range opts.Families {
		h.families[f] = &familyHealth{}
	}
	return h
}

// Queued reports that a change of the families has come.
func (h *ProxyHealth) Queued(families ...rules.Family) {
	now := h.opts.Clock.Now()
	h.update(families, func(f *familyHealth) {
		if f.queued.IsZero() {
			f.queued = now
		}
	})
}

// Began reports that a sync begins, with all changes of the families that have come.
func (h *ProxyHealth) Began(families ...rules.Family) {
	h.update(families, func(f *familyHealth) {
		if f.taken.IsZero() {
			f.taken = f.queued
		}
		f.queued = time.Time{}
	})
}

// Updated reports that what the last sync of the families took is in force.
func (h *ProxyHealth) Updated(families ...rules.Family) {
	now := h.opts.Clock.Now()
	h.update(families, func(f *familyHealth) {
		f.taken = time.Time{}
		f.updated = now
	})
}

func (h *ProxyHealth) update(families []rules.Family, change func(*familyHealth)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, family := range families {
		if f := h.families[family]; f != nil {
			change(f)
		}
	}
}

// SetNode takes the newest state of the node; nil if there is no Node object, which is
// also how it begins. Who serves without a cluster has to set a Node too.
func (h *ProxyHealth) SetNode(node *Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.node = node
}

// Healthy reports whether all families are healthy. The node does not matter.
func (h *ProxyHealth) Healthy() bool { return h.answer().Healthy }

// proxyAnswer is the body of an answer.
type proxyAnswer struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyAnswer `json:"status,omitempty"`
}

type familyAnswer struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// answer returns what is the same for both paths.
func (h *ProxyHealth) answer() proxyAnswer {
	now := h.opts.Clock.Now()
	a := proxyAnswer{CurrentTime: now, Healthy: true, Status: map[string]familyAnswer{}}
	late := func(came time.Time) bool { return !came.IsZero() && now.Sub(came) >= h.opts.Timeout }
	h.mu.Lock()
	defer h.mu.Unlock()
	for family, f := range h.families {
		healthy := !f.updated.IsZero() && !late(f.queued) && !late(f.taken)
		a.Status[family.String()] = familyAnswer{LastUpdated: f.updated, Healthy: healthy}
		a.Healthy = a.Healthy && healthy
		if f.updated.After(a.LastUpdated) {
			a.LastUpdated = f.updated
		}
	}
	return a
}

// eligible reports whether the node should get traffic.
func (h *ProxyHealth) eligible() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.node != nil && !h.node.Deleting && !h.node.ToBeDeleted
}

// Handler returns what answers /healthz and /livez: 200 if all is well, 503 if not.
// A node that is about to go is only /healthz's matter.
func (h *ProxyHealth) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		a, eligible := h.answer(), h.eligible()
		a.NodeEligible = &eligible
		reply(w, a, a.Healthy && eligible, h.opts.OnHealthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		a := h.answer()
		reply(w, a, a.Healthy, h.opts.OnLivez)
	})
	return mux
}

func reply(w http.ResponseWriter, a proxyAnswer, ok bool, count func(code int)) {
	code := http.StatusServiceUnavailable
	if ok {
		code = http.StatusOK
		// As of kube-proxy: once this was the time of a sync that ran whether or not
		// there was anything to do, and readers compare it with the current time.
		a.LastUpdated = a.CurrentTime
	}
	if count != nil {
		count(code)
	}
	writeJSON(w, code, a)
}

// writeJSON answers with a value. Who asked may have gone: that is not an error.
func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

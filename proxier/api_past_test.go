package proxier

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// A watch goes on from a version only if the server has reached it, and so does a list.
func TestAPIPast(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no"))
	for name, test := range map[string]struct {
		from    string
		newest  string
		err     error // of the question
		asked   bool
		expired bool
	}{
		"from nothing":                {from: ""},
		"from anything":               {from: "0"},
		"the newest":                  {from: "10", newest: "10", asked: true},
		"an older one":                {from: "10", newest: "100", asked: true},
		"one to come":                 {from: "10", newest: "9", asked: true, expired: true},
		"one to come, with 20 digits": {from: "18446744073709551617", newest: "18446744073709551616", asked: true, expired: true},
		"no answer":                   {from: "10", err: forbidden, asked: true},
		"versions without an order":   {from: "10", newest: "x9", asked: true},
		"an answer without a version": {from: "10", newest: "", asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			questions := 0
			p := &apiPast{log: zap.NewNop(), newest: func(context.Context) (string, error) {
				questions++
				return test.newest, test.err
			}}
			o := metav1.ListOptions{ResourceVersion: test.from}
			withInitialEvents := metav1.ListOptions{ResourceVersion: test.from, SendInitialEvents: ptr.To(true)}
			if err := p.watch(t.Context(), withInitialEvents); err != nil {
				t.Errorf("a list as a watch that nothing is known of: %v", err)
			}
			for _, request := range []func(context.Context, metav1.ListOptions) error{p.watch, p.list} {
				err := request(t.Context(), o)
				if apierrors.IsResourceExpired(err) != test.expired || !test.expired && !errors.Is(err, test.err) {
					t.Errorf("%v", err)
				}
			}
			if want := map[bool]int{true: 2}[test.asked]; questions != want {
				t.Errorf("%d questions, want %d", questions, want)
			}
			// What was refused is no version for a list as a watch either.
			if err := p.watch(t.Context(), withInitialEvents); apierrors.IsResourceExpired(err) != test.expired {
				t.Errorf("a list as a watch: %v", err)
			}
			other := metav1.ListOptions{ResourceVersion: "11", SendInitialEvents: ptr.To(true)}
			if err := p.watch(t.Context(), other); err != nil {
				t.Errorf("another list as a watch: %v", err)
			}
		})
	}
}

// The first watch after a list needs no question, the next one from the same version does.
func TestAPIPastAfterList(t *testing.T) {
	p := &apiPast{log: zap.NewNop(), newest: func(context.Context) (string, error) { return "9", nil }}
	p.listed("10")
	for i, expired := range []bool{false, true} {
		if err := p.watch(t.Context(), metav1.ListOptions{ResourceVersion: "10"}); apierrors.IsResourceExpired(err) != expired {
			t.Errorf("watch %d: %v", i, err)
		}
	}
}

// oldServer answers all requests but lists as watches, and remembers them.
type oldServer struct {
	t      testing.TB
	status int
	newest string
	all    []string
}

func (q *oldServer) answer(w http.ResponseWriter, req *http.Request) {
	var text []string
	for _, name := range []string{"watch", "limit", "resourceVersion", "labelSelector", "fieldSelector"} {
		if value := req.FormValue(name); value != "" {
			text = append(text, name+"="+value)
		}
	}
	q.all = append(q.all, strings.Join(text, " "))
	w.Header().Set("Content-Type", "application/json")
	var body runtime.Object = &corev1.ServiceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"},
		ListMeta: metav1.ListMeta{ResourceVersion: q.newest},
	}
	if q.status != http.StatusOK {
		body = &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(q.status), Reason: metav1.StatusReasonForbidden, Message: "no right",
		}
	}
	w.WriteHeader(q.status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		q.t.Error(err)
	}
}

// When a watch ends and the server turns out to be older, or does not say how old it is,
// everything is listed anew. What was known of the lost history is not asked for.
func TestAPIRestored(t *testing.T) {
	const question = "limit=1 labelSelector=!service.kubernetes.io/service-proxy-name fieldSelector=spec.clusterIP!=None"
	for name, test := range map[string]struct {
		status int
		newest string
		relist string // from that version
		logged string
	}{
		"the server is older":             {http.StatusOK, "9", "", "the API server is older than the last known state"},
		"it does not let itself be asked": {http.StatusForbidden, "", "12", "no right (a ClusterRole must allow to list and watch them)"},
	} {
		t.Run(name, func(t *testing.T) {
			q := &oldServer{t: t, status: test.status, newest: test.newest}
			server := newAPIServer(t)
			server.one = q.answer
			server.events[servicesPath] = []runtime.Object{namedService("a", "10.96.0.1"), namedService("b", "10.96.0.2")}
			client, err := NewClient(ClientOptions{Kubeconfig: kubeconfig(t, server.URL)})
			must(t, err)
			core, logs := observer.New(zapcore.WarnLevel)
			r := newSourceRecorder(t)
			r.ending = append(r.ending, server.CloseClientConnections, server.Close)
			stop := r.start(NewAPI(client, "node-1", zap.New(core)))
			r.waitSynced()
			r.waitNames("ns/a ns/b")

			server.mu.Lock()
			server.events[servicesPath] = []runtime.Object{namedService("a", "10.96.0.1")}
			more := server.more[servicesPath]
			server.mu.Unlock()
			c := namedService("c", "10.96.0.3")
			c.ResourceVersion = "12"
			more <- metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: c}}
			r.waitNames("ns/a ns/b ns/c")
			close(more) // a watch that has told something ends, and is to be resumed
			r.waitNames("ns/a")
			stop()

			if !slices.Equal(q.all, []string{question}) {
				t.Errorf("the server was asked %q", q.all)
			}
			if got := server.requests[servicesPath].FormValue("resourceVersion"); got != test.relist {
				t.Errorf("listed from %q, want %q", got, test.relist)
			}
			if !strings.Contains(messages(logs), test.logged) {
				t.Errorf("logged %s", messages(logs))
			}
		})
	}
}

func messages(logs *observer.ObservedLogs) string {
	var all []string
	for _, entry := range logs.All() {
		all = append(all, entry.Message)
	}
	return strings.Join(all, "\n")
}

package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/proxier/metrics"
)

// registered are the metrics that clients report to: client-go takes the first
// registration only.
var registered = sync.OnceValue(func() *metrics.Metrics {
	m := newMetrics()
	m.RegisterRESTClient()
	return m
})

// TestRESTClient lets a client ask a server, and finds the requests in the metrics.
func TestRESTClient(t *testing.T) {
	m := registered()
	newMetrics().RegisterRESTClient() // has no effect
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"kind":"ServiceList","apiVersion":"v1","items":[]}`))
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("it is forbidden")
	}
	host := strings.TrimPrefix(server.URL, "http://")
	got := scrape(t, m, "rest_client_")
	for _, want := range []string{
		`rest_client_requests_total{code="200",host="` + host + `",method="GET"} 1`,
		`rest_client_requests_total{code="403",host="` + host + `",method="GET"} 1`,
		`rest_client_request_duration_seconds_count{host="` + host + `",verb="GET"} 2`,
		`rest_client_response_size_bytes_count{host="` + host + `",verb="GET"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

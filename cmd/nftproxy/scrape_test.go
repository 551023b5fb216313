package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// The addresses of the daemon's servers.
const (
	metricsURL = "http://127.0.0.1:10249/metrics"
	healthzURL = "http://127.0.0.1:10256/healthz"
)

// get asks a server in a namespace.
func get(ctx context.Context, ns *nstest.NS, url string) (status int, body string, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = ns.Do(func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make a request: %w", err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", url, err)
	}
	return response.StatusCode, string(text), response.Body.Close()
}

// awaitHealthy waits until the daemon in a namespace has synced.
func awaitHealthy(t *testing.T, ns *nstest.NS) {
	t.Helper()
	eventually(t, "a healthy daemon", func() bool {
		status, _, err := get(t.Context(), ns, healthzURL)
		return err == nil && status == http.StatusOK
	})
}

// metric returns the value of one series of the daemon in a namespace, 0 if there is
// none or if it does not answer.
func metric(t *testing.T, ns *nstest.NS, series string) float64 {
	t.Helper()
	_, body, err := get(t.Context(), ns, metricsURL)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatalf("metric %s: %v", series, err)
			}
			return value
		}
	}
	return 0
}

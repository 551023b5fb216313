package httpserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/proxier/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server until the test ends it with stop, and returns what Run
// returned.
func start(t *testing.T, s *httpserver.Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// get returns the body of an answer, or the error.
func get(t *testing.T, addr net.Addr) (string, error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr.String()+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) })
}

func TestServer(t *testing.T) {
	listening := make(chan net.Addr, 1)
	stop := start(t, &httpserver.Server{
		Name: "test", Addr: "127.0.0.1:0", Handler: text("hello"), Log: zap.NewNop(),
		Listening: func(a net.Addr) { listening <- a },
	})
	addr := <-listening
	if body, err := get(t, addr); body != "hello" || err != nil {
		t.Errorf("body %q, error %v", body, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := get(t, addr); err == nil {
		t.Error("it still answers")
	}
}

// TestRetry has the port in use until the server has complained about it twice.
func TestRetry(t *testing.T) {
	var config net.ListenConfig
	other, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	core, logs := observer.New(zap.WarnLevel)
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	listening := make(chan net.Addr, 1)
	stop := start(t, &httpserver.Server{
		Name: "test", Addr: other.Addr().String(), Handler: text("hello"), Log: zap.New(core), Clock: clock,
		Listening: func(a net.Addr) { listening <- a },
	})
	for range 2 {
		waitForWaiter(clock)
		clock.Step(httpserver.RetryInterval)
	}
	waitForWaiter(clock)
	if n := logs.Len(); n != 3 {
		t.Errorf("%d lines in the log, want 3", n)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	clock.Step(httpserver.RetryInterval)
	if body, err := get(t, <-listening); body != "hello" || err != nil {
		t.Errorf("body %q, error %v", body, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// waitForWaiter waits until a timer runs.
func waitForWaiter(clock *testingclock.FakeClock) {
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
}

// TestStopWhileRetrying ends a server that never listened.
func TestStopWhileRetrying(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	stop := start(t, &httpserver.Server{Name: "test", Addr: "127.0.0.1:notaport", Log: zap.NewNop(), Clock: clock})
	waitForWaiter(clock)
	if err := stop(); err != nil {
		t.Error(err)
	}
	if clock.HasWaiters() {
		t.Error("the timer still runs")
	}
}

func TestHardFail(t *testing.T) {
	s := &httpserver.Server{Name: "metrics", Addr: "127.0.0.1:notaport", HardFail: true, Log: zap.NewNop()}
	err := s.Run(t.Context())
	if _, ok := errors.AsType[*net.OpError](err); !ok || !strings.Contains(err.Error(), "serve metrics") {
		t.Errorf("error %v", err)
	}
}

// TestEndWithRequest ends a server while a request is answered: it gets its answer.
func TestEndWithRequest(t *testing.T) {
	release, started := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-release
		_, _ = io.WriteString(w, "at last")
	})
	listening := make(chan net.Addr, 1)
	stop := start(t, &httpserver.Server{
		Name: "test", Addr: "127.0.0.1:0", Handler: handler, Log: zap.NewNop(), Listening: func(a net.Addr) { listening <- a },
	})
	addr := <-listening
	answered := make(chan string, 1)
	go func() {
		body, _ := get(t, addr)
		answered <- body
	}()
	<-started
	go func() { _ = stop(); close(ended) }()
	close(release)
	<-ended
	if body := <-answered; body != "at last" {
		t.Errorf("body %q", body)
	}
}

// TestEndCutsOff ends a server while a handler waits for its request's context.
func TestEndCutsOff(t *testing.T) {
	started, returned := make(chan struct{}), false
	listening := make(chan net.Addr, 1)
	stop := start(t, &httpserver.Server{
		Name: "test", Addr: "127.0.0.1:0", Log: zap.NewNop(), Listening: func(a net.Addr) { listening <- a },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(started)
			<-r.Context().Done()
			returned = true
		}),
	})
	addr := <-listening
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = get(t, addr) // an error, or an empty answer
	}()
	<-started
	if err := stop(); err != nil {
		t.Error(err)
	}
	if !returned {
		t.Error("the handler still ran when Run returned")
	}
	<-asked
}

// TestBrokenListener: a listener that fails is an error, and what runs is waited for.
func TestBrokenListener(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := httpserver.Serve(t.Context(), listener, text(""), zap.NewNop()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

package httpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

// The servers are open to whoever reaches the node. These bounds keep a slow or idle
// client from holding a connection for long.
const (
	readTimeout    = 10 * time.Second // for a whole request
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	// writeTimeout bounds an answer. It is as long as a profile can be.
	writeTimeout = 5 * time.Minute
	// graceTime is what answers under way get when a server ends.
	graceTime = time.Second
)

// Serve answers the requests that come to the listener until the context is done, then
// returns nil. It closes the listener. Answers under way get a second to end; after that
// their requests' contexts are done and their connections closed, and Serve waits for
// the handlers. It returns an error if the listener fails.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *zap.Logger) error {
	errorLog, err := zap.NewStdLogAt(log, zap.WarnLevel)
	if err != nil {
		return fmt.Errorf("make the log of a server: %w", err)
	}
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var connections sync.WaitGroup
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew: // from the goroutine that accepts
				connections.Add(1)
			case http.StateClosed, http.StateHijacked:
				connections.Done()
			default:
			}
		},
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = server.Serve(listener)
	}()
	select {
	case <-ended:
		err = fmt.Errorf("accept connections on %s: %w", listener.Addr(), failure)
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(requests, graceTime)
	defer stop()
	if server.Shutdown(grace) != nil {
		cancel()
		_ = server.Close() // closed the listener already
	}
	<-ended
	connections.Wait()
	return err
}

package httpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// RetryInterval is the time between two attempts to listen: that of kube-proxy.
const RetryInterval = 5 * time.Second

// Server is an HTTP server at one address.
type Server struct {
	// Name says in the log, and in errors, what the server is for, such as "healthz".
	Name string
	// Addr is where to listen, such as "127.0.0.1:10249". "0.0.0.0:10256" and
	// "[::]:10256" both mean all addresses of both families, as for kube-proxy.
	Addr    string
	Handler http.Handler
	// HardFail ends Run with an error if the address cannot be listened on. If false,
	// Run tries again every RetryInterval: the other program that has the port may
	// end, or the address may come.
	HardFail bool
	// Listening, if set, is called with the address whenever the server begins to
	// listen.
	Listening func(net.Addr)
	// Clock is the time. nil: the system's.
	Clock clock.Clock
	Log   *zap.Logger
}

// Run serves until the context is done, then returns nil once nothing of the server
// runs any more.
func (s *Server) Run(ctx context.Context) error {
	c := s.Clock
	if c == nil {
		c = clock.RealClock{}
	}
	for {
		err := s.listenAndServe(ctx)
		if err == nil || s.HardFail {
			return err
		}
		s.Log.Warn("a server does not run; trying again", zap.Duration("in", RetryInterval), zap.Error(err))
		timer := c.NewTimer(RetryInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// listenAndServe serves until the context is done, and then returns nil, or until an
// error ends it.
func (s *Server) listenAndServe(ctx context.Context) error {
	var config net.ListenConfig
	// Without the context's end: that is no error, and there is nothing to wait for.
	listener, err := config.Listen(context.WithoutCancel(ctx), "tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("serve %s (is the port in use, or the address not of this node?): %w", s.Name, err)
	}
	s.Log.Info("listening", zap.String("server", s.Name), zap.Stringer("address", listener.Addr()))
	if s.Listening != nil {
		s.Listening(listener.Addr())
	}
	if err := Serve(ctx, listener, s.Handler, s.Log); err != nil {
		return fmt.Errorf("serve %s: %w", s.Name, err)
	}
	return nil
}

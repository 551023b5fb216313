package probe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// lingerLimit is how long a server keeps a connection that it has answered, for
// the client to close it first.
const lingerLimit = 3 * time.Second

// Server answers on one address and port, over TCP and UDP.
type Server struct {
	at  netip.AddrPort
	tcp *net.TCPListener
	udp *net.UDPConn

	work  sync.WaitGroup
	mu    sync.Mutex
	conns map[net.Conn]bool // open ones; nil after Close
}

// Serve starts a server in a namespace. The caller closes it.
func Serve(ns *namespace.Namespace, at netip.AddrPort) (*Server, error) {
	tcp, err := ns.ListenTCP(at)
	if err != nil {
		return nil, fmt.Errorf("serve at %s: %w", at, err)
	}
	udp, err := ns.ListenUDP(at)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve at %s: %w", at, err), tcp.Close())
	}
	s := &Server{at: at, tcp: tcp, udp: udp, conns: map[net.Conn]bool{}}
	s.work.Go(s.serveTCP)
	s.work.Go(s.serveUDP)
	return s, nil
}

// Address is where the server answers.
func (s *Server) Address() netip.AddrPort { return s.at }

// Close stops the server and waits until all its work has ended.
func (s *Server) Close() error {
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.mu.Lock()
	for conn := range s.conns {
		err = errors.Join(err, conn.Close())
	}
	s.conns = nil
	s.mu.Unlock()
	s.work.Wait()
	if err != nil {
		return fmt.Errorf("close the server at %s: %w", s.at, err)
	}
	return nil
}

func (s *Server) serveTCP() {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil || !s.add(conn) {
			return // closed
		}
		s.work.Go(func() {
			s.answer(conn)
			s.remove(conn)
		})
	}
}

// answer writes the answer and waits for the client to close: the end that
// closes first is the one that keeps the port for a while.
func (s *Server) answer(conn *net.TCPConn) {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return
	}
	source := remote.AddrPort()
	if err := conn.SetDeadline(time.Now().Add(lingerLimit)); err != nil {
		return
	}
	if _, err := io.WriteString(conn, encode("", s.at, source)); err != nil {
		return
	}
	if err := conn.CloseWrite(); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn) // ends with whatever the client does
}

// add notes an open connection; it reports false, and closes it, when the
// server is closed.
func (s *Server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		_ = conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[conn] {
		delete(s.conns, conn)
		_ = conn.Close()
	}
}

func (s *Server) serveUDP() {
	buffer := make([]byte, 512)
	for {
		n, source, err := s.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return // closed
		}
		answer := encode(string(buffer[:n]), s.at, source)
		// A client that has gone away is not this server's concern.
		_, _ = s.udp.WriteToUDPAddrPort([]byte(answer), source)
	}
}

// encode makes an answer: the token that came with the question (one word or
// none), the address that answered, the source that it saw.
func encode(token string, endpoint, source netip.AddrPort) string {
	source = netip.AddrPortFrom(source.Addr().Unmap(), source.Port())
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", token, endpoint, source)) + "\n"
}

// decode reads an answer to a question with the token.
func decode(answer, token string) (endpoint, source netip.AddrPort, err error) {
	rest, ok := strings.CutPrefix(answer, token)
	fields := strings.Fields(rest)
	if !ok || len(fields) != 2 {
		return endpoint, source, fmt.Errorf("answer %q to a question with token %q", answer, token)
	}
	if endpoint, err = netip.ParseAddrPort(fields[0]); err != nil {
		return endpoint, source, fmt.Errorf("endpoint of an answer: %w", err)
	}
	if source, err = netip.ParseAddrPort(fields[1]); err != nil {
		return endpoint, source, fmt.Errorf("source of an answer: %w", err)
	}
	return endpoint, source, nil
}

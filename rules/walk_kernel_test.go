package rules_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// TestWalkAgreesWithKernel loads the rulesets of some random clusters and sends real
// packets: what becomes of them is what the walk says. A server listens everywhere where
// a packet may go, so that an answer or its absence tells it all: every server says which
// one it is and whom it sees.
func TestWalkAgreesWithKernel(t *testing.T) {
	const clusters, packets, fewest = 10, 30, 3
	n := newTestNet(t)
	met := map[string]int{}
	port := uint16(20000) // no two packets are of the same connection
	for seed := range uint64(clusters) {
		g := newGenerator(1_000_000 + seed)
		c := g.cluster()
		ruleset := g.compile(t, c)
		n.node.MustNFT(t, "flush ruleset", "-f", "-")
		loadEncoded(t, n.node, ruleset)
		var probes []*probe
		for _, f := range rules.Families() {
			walker := rules.NewWalker(ruleset, f, c.host)
			for range packets {
				p := g.packet(c, f)
				for p.Protocol == rules.SCTP {
					p = g.packet(c, f)
				}
				if p.Interface != "" {
					p.Mark = 0 // does not cross namespaces
				}
				port++
				p.Source = netip.AddrPortFrom(p.Source.Addr(), port)
				probes = append(probes, &probe{packet: p, trace: walker.Walk(p, nil)})
			}
		}
		n.send(t, probes)
		for _, p := range probes {
			outcome := p.outcome()
			if !p.expected(c) {
				t.Errorf("seed %d: the packet is %s: answer %q, error %v\n%s", seed, outcome, p.answer, p.err,
					describe(c, p.packet, familyOf(p.packet), c.fate(p.packet), p.trace))
			}
			met[fmt.Sprintf("%s, from %s: %s", familyOf(p.packet), sender(p.packet), outcome)]++
		}
	}
	for _, f := range rules.Families() {
		for _, from := range []string{"a pod", "the node", "elsewhere"} {
			for _, outcome := range []rules.Outcome{rules.Untouched, rules.Translated, rules.Rejected, rules.Dropped} {
				if what := fmt.Sprintf("%s, from %s: %s", f, from, outcome); met[what] < fewest {
					t.Errorf("%q was met %d times", what, met[what])
				}
			}
		}
	}
	t.Logf("met:\n%s", listCounts(met))
}

func sender(p rules.Packet) string {
	switch p.Interface {
	case "":
		return "the node"
	case "eth0":
		return "elsewhere"
	default:
		return "a pod"
	}
}

// probe is a packet that is sent, and what became of it.
type probe struct {
	packet rules.Packet
	trace  rules.Trace
	answer string
	err    error
}

// outcome tells what became of the packet by its answer.
func (p *probe) outcome() rules.Outcome {
	server, _, _ := strings.Cut(p.answer, " ")
	switch {
	case errors.Is(p.err, unix.ECONNREFUSED):
		return rules.Rejected
	case errors.Is(p.err, os.ErrDeadlineExceeded) || errors.Is(p.err, context.Canceled):
		return rules.Dropped
	case p.err != nil:
		return 0
	case server == p.packet.Dest.String():
		return rules.Untouched
	default:
		return rules.Translated
	}
}

// expected reports whether this is one of the things that may become of the packet.
func (p *probe) expected(c *cluster) bool {
	server, source, _ := strings.Cut(p.answer, " ")
	for _, r := range p.trace.Results {
		if r.Outcome != p.outcome() {
			continue
		}
		if r.Outcome == rules.Rejected || r.Outcome == rules.Dropped {
			return true
		}
		// Who talks to itself may be masqueraded as itself.
		itself := p.packet.Interface == "" && c.isLocal(r.Dest.Addr())
		if server == r.Dest.String() && (itself || r.Masqueraded == (source != p.packet.Source.Addr().String())) {
			return true
		}
	}
	return false
}

// dropped reports whether no answer is expected.
func (p *probe) dropped() bool { return p.trace.Results[0].Outcome == rules.Dropped }

// send sends all packets at once and waits for the answers. When all that are expected
// are there, those that are not have had their time.
func (n *testNet) send(t *testing.T, probes []*probe) {
	t.Helper()
	const patience, grace = 10 * time.Second, 50 * time.Millisecond
	stop := n.listen(t, probes)
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var expected, all sync.WaitGroup
	for _, p := range probes {
		done := func() {}
		if !p.dropped() {
			expected.Add(1)
			done = expected.Done
		}
		all.Go(func() {
			defer done()
			p.answer, p.err = n.ask(ctx, p.packet, patience)
		})
	}
	expected.Wait()
	time.Sleep(grace)
	cancel()
	all.Wait()
}

// ask sends a packet and returns the answer.
func (n *testNet) ask(ctx context.Context, p rules.Packet, patience time.Duration) (answer string, err error) {
	dialer := net.Dialer{Timeout: patience, LocalAddr: net.UDPAddrFromAddrPort(p.Source), Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.Mark)) }), err)
	}}
	if p.Protocol == rules.TCP {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(p.Source)
	}
	var conn net.Conn
	err = n.at(p.Source.Addr(), true).Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, p.Protocol.String(), p.Dest.String())
		return err
	})
	if err != nil {
		return "", timedOut(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	// What the kernel drops or rejects on its way out is an error here already, but not
	// which of both.
	if _, err := conn.Write([]byte("who are you, and who am I?")); err != nil && !errors.Is(err, unix.EPERM) {
		return "", err
	}
	text := make([]byte, 200)
	length, err := conn.Read(text)
	if length > 0 {
		err = nil
	}
	return string(text[:length]), err
}

// timedOut makes one error of those of a connection that is not made in time.
func timedOut(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errors.Join(err, os.ErrDeadlineExceeded)
	}
	return err
}

// listen starts servers at the destinations of packets, before and after their
// translation, and returns what stops them.
func (n *testNet) listen(t *testing.T, probes []*probe) (stop func()) {
	t.Helper()
	type socket struct {
		protocol rules.Protocol
		addr     netip.AddrPort
	}
	var closers []io.Closer
	var serving sync.WaitGroup
	servers := map[socket]bool{}
	start := func(s socket) {
		if servers[s] {
			return
		}
		servers[s] = true
		var tcp net.Listener
		var udp *net.UDPConn
		n.must(t, n.at(s.addr.Addr(), false), func() (err error) {
			if s.protocol == rules.TCP {
				tcp, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", s.addr.String())
			} else {
				udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.addr))
			}
			return err
		})
		if s.protocol == rules.TCP {
			closers = append(closers, tcp)
			serving.Go(func() { serveTCP(tcp) })
		} else {
			closers = append(closers, udp)
			serving.Go(func() { serveUDP(udp) })
		}
	}
	for _, p := range probes {
		start(socket{p.packet.Protocol, p.packet.Dest})
		for _, r := range p.trace.Results {
			start(socket{p.packet.Protocol, r.Dest})
		}
	}
	return func() {
		for _, c := range closers {
			c.Close()
		}
		serving.Wait()
	}
}

func serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		question := make([]byte, 200)
		_, _ = conn.Read(question)
		_, _ = fmt.Fprintf(conn, "%s %s", listener.Addr(), source(conn.RemoteAddr()))
		_ = conn.Close()
	}
}

func serveUDP(conn *net.UDPConn) {
	question := make([]byte, 200)
	for {
		_, from, err := conn.ReadFromUDPAddrPort(question)
		if err != nil {
			return
		}
		_, _ = conn.WriteToUDPAddrPort(fmt.Appendf(nil, "%s %s", conn.LocalAddr(), from.Addr().Unmap()), from)
	}
}

func source(a net.Addr) string {
	return netip.MustParseAddrPort(a.String()).Addr().String()
}

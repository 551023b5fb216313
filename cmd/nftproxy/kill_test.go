package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

const (
	kills    = 50
	killSeed = 20_260_731
	// rolling is the number of Services whose endpoints change all the time.
	rolling = 40
	// clients is how many connections are held, and how many clients are remembered.
	clients = 10
)

// TestKillAtAnyMoment kills the daemon while its first sync or a later one may be under
// way, and while manifests change. Whenever one daemon has started after that, the
// kernel holds what is computed from nothing, connections live on, and clients still
// meet their endpoints.
func TestKillAtAnyMoment(t *testing.T) {
	t.Logf("seed %d", killSeed)
	k := newKillBench(t)
	d := k.start(t)
	k.connect(t)
	for killed := 0; killed < kills; {
		stop := k.churn(t)
		for range 1 + k.random.IntN(3) {
			time.Sleep(time.Duration(k.random.IntN(250)) * time.Millisecond)
			if status := d.stop(t, syscall.SIGKILL); status != -1 {
				t.Fatalf("exit status %d", status)
			}
			killed++
			d = startDaemon(t, k.ns, "--manifests", k.manifests)
		}
		_ = d.stop(t, syscall.SIGKILL)
		killed++
		stop()
		d = k.start(t)
		k.checkRules(t)
		k.checkConnections(t)
		if t.Failed() {
			t.Fatalf("after %d kills", killed)
		}
	}
}

// killBench is a node with pods, a client that holds connections, and manifests that
// change.
type killBench struct {
	ns        *nstest.NS
	manifests string
	random    *rand.Rand
	held      []net.Conn
	met       []string // the endpoint of each client
}

func newKillBench(t *testing.T) *killBench {
	t.Helper()
	k := &killBench{ns: nstest.New(t), random: rand.New(rand.NewPCG(killSeed, killSeed))}
	if err := k.ns.Do(addPodRoutes); err != nil {
		t.Fatal(err)
	}
	k.serve(t)
	k.manifests = write(t, k.objects(0))
	return k
}

// addPodRoutes makes all addresses of pods local, so that any can be listened on, and
// gives ClusterIPs a route that leads nowhere unless they are translated.
func addPodRoutes() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	_, pods, _ := net.ParseCIDR("10.244.0.0/16")
	_, services, _ := net.ParseCIDR("10.96.0.0/16")
	return errors.Join(
		netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: pods, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		}),
		netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: services, Scope: netlink.SCOPE_LINK}),
	)
}

// serve is every endpoint: it says first at which address a connection arrived, and then
// sends back what it gets.
func (k *killBench) serve(t *testing.T) {
	t.Helper()
	var listener net.Listener
	err := k.ns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":8080")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				t.Errorf("the endpoints: %v", err)
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				if _, err := fmt.Fprintln(conn, conn.LocalAddr()); err == nil {
					_, _ = io.Copy(conn, conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

// objects are a Service with session affinity, with up to so many endpoints beside those
// that stay; one whose connections are held; and many whose endpoints differ every time.
func (k *killBench) objects(more int) string {
	var text strings.Builder
	service := func(n int, spec string, endpoints ...int) {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: web-%d, namespace: default}\n", n)
		fmt.Fprintf(&text, "spec: {clusterIP: 10.96.0.%d, %sports: [{port: 80}]}\n", n, spec)
		fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata: {name: web-%d, namespace: default, labels: {kubernetes.io/service-name: web-%d}}\n"+
			"addressType: IPv4\nports: [{name: \"\", port: 8080}]\nendpoints:\n", n, n)
		for _, e := range endpoints {
			fmt.Fprintf(&text, "- {addresses: [10.244.%d.%d]}\n", n, e)
		}
	}
	some := func() []int { return k.random.Perm(30)[:1+k.random.IntN(12)] }
	sticky := []int{1, 2, 3}
	for _, e := range k.random.Perm(30)[:more] {
		sticky = append(sticky, 100+e)
	}
	service(1, "sessionAffinity: ClientIP, ", sticky...)
	service(2, "", 1, 2, 3)
	for n := range rolling {
		service(3+n, "", some()...)
	}
	return text.String()
}

// churn replaces the manifests all the time, until stop, which waits for the last one.
func (k *killBench) churn(t *testing.T) (stop func()) {
	t.Helper()
	next := make(chan string)
	done := make(chan struct{})
	var texts []string // made here: the random numbers are not for two goroutines
	for range 20 {
		texts = append(texts, k.objects(k.random.IntN(12)))
	}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-next:
				return
			case <-time.After(10 * time.Millisecond):
				replace(t, k.manifests, texts[i%len(texts)])
			}
		}
	}()
	return func() {
		close(next)
		<-done
	}
}

// start starts the daemon and waits for its first sync.
func (k *killBench) start(t *testing.T) *process {
	t.Helper()
	d := startDaemon(t, k.ns, "--manifests", k.manifests)
	awaitHealthy(t, k.ns)
	return d
}

// connect opens the connections that are held, and meets endpoints as each client.
func (k *killBench) connect(t *testing.T) {
	t.Helper()
	for n := range clients {
		conn, _ := k.dial(t, "10.96.0.2", n)
		t.Cleanup(func() { _ = conn.Close() })
		k.held = append(k.held, conn)
		conn, endpoint := k.dial(t, "10.96.0.1", n)
		_ = conn.Close()
		k.met = append(k.met, endpoint)
	}
}

// dial opens a connection as the n-th client, and returns which endpoint answers.
func (k *killBench) dial(t *testing.T, clusterIP string, n int) (conn net.Conn, endpoint string) {
	t.Helper()
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 250, byte(n)}), 0))
	err := k.ns.Do(func() (err error) {
		conn, err = (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp4", clusterIP+":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 64)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	size, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return conn, strings.TrimSpace(string(answer[:size]))
}

// checkConnections checks that what was connected is, and that clients are remembered.
func (k *killBench) checkConnections(t *testing.T) {
	t.Helper()
	for n, conn := range k.held {
		echo := make([]byte, 1)
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write([]byte{byte(n)}); err != nil {
			t.Errorf("connection %d: %v", n, err)
		} else if _, err := conn.Read(echo); err != nil || echo[0] != byte(n) {
			t.Errorf("connection %d: %v, %v", n, echo, err)
		}
	}
	for n, want := range k.met {
		conn, endpoint := k.dial(t, "10.96.0.1", n)
		_ = conn.Close()
		if endpoint != want {
			t.Errorf("client %d is led to %s, it was %s before", n, endpoint, want)
		}
	}
}

// checkRules compares the kernel with what a new computation makes.
func (k *killBench) checkRules(t *testing.T) {
	t.Helper()
	status, dump, stderr := nftproxy("dump", "--manifests", k.manifests)
	if status != exitOK {
		t.Fatalf("dump: %s", stderr)
	}
	fresh := nstest.New(t)
	fresh.MustNFT(t, dump, "-f", "-")
	if diff := cmp.Diff(withoutClients(t, fresh.Listing(t)), withoutClients(t, k.ns.Listing(t))); diff != "" {
		t.Errorf("the kernel (+) is not what %s makes (-):\n%s", filepath.Base(k.manifests), diff)
	}
}

// withoutClients takes those who are remembered out of a listing.
func withoutClients(t *testing.T, listing []string) []string {
	t.Helper()
	lines := make([]string, len(listing))
	for i, line := range listing {
		lines[i] = line
		kind, text, _ := strings.Cut(line, " ")
		if !strings.Contains(text, `"name":"affinity-`) || kind != "map" {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		delete(object, "elem")
		rest, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = kind + " " + string(rest)
	}
	return lines
}

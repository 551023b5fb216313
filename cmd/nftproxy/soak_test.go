package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

const (
	soakSeed = 20_260_801
	// soakServices is how many Services there are, busyServices how many of them get
	// connections. Each has endpointsEach endpoints.
	soakServices  = 2000
	busyServices  = 20
	endpointsEach = 5
	// changesPerSecond and connectionsPerSecond are what the daemon and its rules get.
	changesPerSecond     = 500
	connectionsPerSecond = 500
	connectors           = 4
	// soakDefault is how long the test takes unless SOAK says it.
	soakDefault = 6 * time.Second
)

// TestSoak changes endpoints and opens connections all the time, while the daemon is
// killed and started again, and while the API server fails. No connection fails. None
// reaches an endpoint that was gone before a change that is known to be in force: a
// marker, which changes all the time, too. How long markers take is logged. In the second
// half of the time the daemon is left alone, and must not grow.
func TestSoak(t *testing.T) {
	duration := soakDefault
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d, %s", soakSeed, duration)
	s := newSoak(t)
	d := s.start(t)
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { s.change(t, end) })
	for n := range connectors {
		running.Go(func() { s.connect(t, n, end) })
	}
	running.Go(func() { s.mark(t, end) })
	d = s.restart(t, d, duration/2)
	before := s.usage(t, d)
	s.hiccup(duration / 2)
	after := s.usage(t, d)
	close(end)
	running.Wait()
	t.Logf("%d changes, %d connections, %d failed or stale", s.changes, s.connected.count(), s.wrong.count())
	s.lags.log(t)
	t.Logf("before the second half %+v, after it %+v", before, after)
	before.mustNotGrow(t, after)
	s.catchesUp(t)
	// How many is up to client-go's pauses; the tests with a real API server make sure of it.
	watches, expired := s.api.watched()
	t.Logf("%d watches, %d of them from a version that was forgotten", watches, expired)
	if s.changes == 0 || s.connected.count() == 0 || watches == 0 || len(s.lags.quiet)+len(s.lags.outages) == 0 {
		t.Error("the test has tested nothing")
	}
	if code := d.stop(t, syscall.SIGTERM); code != exitOK {
		t.Errorf("exit status after SIGTERM: %d", code)
	}
}

// soak is a node with pods and an API server.
type soak struct {
	bench     *killBench
	api       *fakeAPI
	config    string // the kubeconfig file
	random    *rand.Rand
	connected counter
	wrong     counter // connections that failed, or reached what is gone
	changes   int
	lags      lags

	mu        sync.Mutex
	endpoints [soakServices + 1][]int
	gone      map[netip.Addr]time.Time // since when, zero if that is being told
	inForce   time.Time                // all that was told before is
	troubles  int                      // beginnings and ends of outages
}

// counter counts in several goroutines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	ns := nstest.New(t)
	if err := ns.Do(addPodRoutes); err != nil {
		t.Fatal(err)
	}
	s := &soak{
		bench: &killBench{ns: ns}, api: newFakeAPI(t, ns),
		random: rand.New(rand.NewPCG(soakSeed, soakSeed)), gone: map[netip.Addr]time.Time{},
	}
	s.bench.serve(t)
	s.config = s.api.kubeconfig(t)
	s.api.putNode(t)
	for n := range soakServices + 1 {
		s.api.put(t, servicesPath, soakName(n), &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: soakName(n)},
			Spec: corev1.ServiceSpec{
				ClusterIP: clusterIP(n).String(), ClusterIPs: []string{clusterIP(n).String()},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
				Ports:      []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		})
		s.endpoints[n] = s.random.Perm(30)[:endpointsEach]
		s.putSlice(t, n)
	}
	return s
}

// soakName returns the name of a Service. That of the marker comes last, as its rules do
// if those of a sync do not fit into one batch.
func soakName(n int) string {
	if n == marker {
		return "zz-marker"
	}
	return fmt.Sprintf("soak-%d", n)
}

func clusterIP(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, 1 + byte(n/250), 1 + byte(n%250)})
}

// podIP returns the address of an endpoint: a Service has 30 of its own, all of which
// answer.
func podIP(service, endpoint int) netip.Addr {
	n := service*30 + endpoint
	return netip.AddrFrom4([4]byte{10, 244, byte(n / 250), 1 + byte(n%250)})
}

// putSlice writes the endpoints of a Service.
func (s *soak) putSlice(t *testing.T, n int) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: soakName(n) + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: soakName(n)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for _, e := range s.endpoints[n] {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{podIP(n, e).String()}})
	}
	s.api.put(t, slicesPath, slice.Name, slice)
}

// start starts the daemon and waits for its first sync.
func (s *soak) start(t *testing.T) *process {
	t.Helper()
	d := startDaemon(t, s.bench.ns, "--kubeconfig", s.config, "--hostname-override", "node1", "-v", "0")
	awaitHealthy(t, s.bench.ns)
	return d
}

// change rolls endpoints, every tenth time those of a busy Service, until the end.
func (s *soak) change(t *testing.T, end <-chan struct{}) {
	every(end, time.Second/changesPerSecond, func() {
		n := s.random.IntN(soakServices)
		if s.changes%10 == 0 {
			n = s.random.IntN(busyServices)
		}
		s.changes++
		old := s.roll(n)
		s.putSlice(t, n)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone[old] = time.Now()
	})
}

// roll replaces one endpoint of a Service, and returns the old one.
func (s *soak) roll(n int) netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.endpoints[n]
	fresh := s.random.IntN(30)
	for slices.Contains(all, fresh) {
		fresh = s.random.IntN(30)
	}
	i := s.random.IntN(len(all))
	old := podIP(n, all[i])
	s.gone[old] = time.Time{}
	delete(s.gone, podIP(n, fresh))
	s.endpoints[n] = slices.Clone(all)
	s.endpoints[n][i] = fresh
	return old
}

// every does something as often as that until the end. What is late is made up for.
func every(end <-chan struct{}, period time.Duration, do func()) {
	for next := time.Now(); ; next = next.Add(period) {
		select {
		case <-end:
			return
		case <-time.After(time.Until(next)):
		}
		select {
		case <-end:
			return
		default:
			do()
		}
	}
}

// connect opens connections to busy Services until the end.
func (s *soak) connect(t *testing.T, n int, end <-chan struct{}) {
	random := rand.New(rand.NewPCG(soakSeed, uint64(n)))
	err := s.bench.ns.Do(func() error {
		every(end, connectors*time.Second/connectionsPerSecond, func() {
			s.connected.add()
			service := random.IntN(busyServices)
			s.mu.Lock()
			inForce := s.inForce
			s.mu.Unlock()
			endpoint, err := connectOnce(t, service)
			if err == nil {
				err = s.allowed(service, endpoint, inForce)
			}
			if err != nil {
				s.wrong.add()
				t.Errorf("connection to Service %d: %v", service, err)
			}
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// connectOnce connects to a Service and returns the address that answers.
func connectOnce(t *testing.T, service int) (netip.Addr, error) {
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 250, byte(service)}), 0))
	conn, err := (&net.Dialer{LocalAddr: from, Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp4", netip.AddrPortFrom(clusterIP(service), 80).String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = conn.Close() }()
	// It ends with a reset, so that its port is free at once.
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer := make([]byte, 64)
	size, err := conn.Read(answer)
	if err != nil {
		return netip.Addr{}, err
	}
	endpoint, err := netip.ParseAddrPort(strings.TrimSpace(string(answer[:size])))
	return endpoint.Addr(), err
}

// allowed returns an error if an endpoint is not one of a Service, and that it is gone was
// known to be in force before the connection.
func (s *soak) allowed(service int, endpoint netip.Addr, inForce time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.endpoints[service], func(e int) bool { return podIP(service, e) == endpoint }) {
		return nil
	}
	since, ok := s.gone[endpoint]
	switch {
	case !ok:
		return fmt.Errorf("%s answers, which is none of its endpoints", endpoint)
	case since.IsZero() || !since.Before(inForce):
		return nil
	default:
		return fmt.Errorf("%s answers, which is gone since %s, and later changes were in force", endpoint, time.Since(since))
	}
}

// restart ends the daemon several times, in order or not, and starts it again. Then it
// gives the last one time to settle.
func (s *soak) restart(t *testing.T, d *process, duration time.Duration) *process {
	t.Helper()
	const restarts = 4
	for i := range restarts {
		time.Sleep(duration / (2 * restarts))
		s.trouble(func() {
			d.stop(t, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[i%2])
			s.api.forget()
			d = s.start(t)
		})
	}
	s.hiccup(duration / 2)
	return d
}

// hiccup lets the API server fail in several ways, each with a time of quiet after it.
func (s *soak) hiccup(duration time.Duration) {
	pause := func() { time.Sleep(duration / 8) }
	pause()
	s.trouble(s.api.endWatches)
	pause()
	s.trouble(s.api.forget)
	pause()
	s.trouble(func() {
		s.api.setRefuse(true)
		s.api.endWatches()
		time.Sleep(min(duration/8, 2*time.Second))
		s.api.setRefuse(false)
	})
	pause()
	s.trouble(s.api.server.CloseClientConnections)
	pause()
	pause()
}

// catchesUp checks that connections reach the endpoints of the end and no others.
func (s *soak) catchesUp(t *testing.T) {
	t.Helper()
	err := s.bench.ns.Do(func() error {
		for n := range busyServices {
			want := map[netip.Addr]bool{}
			for _, e := range s.endpoints[n] {
				want[podIP(n, e)] = true
			}
			eventually(t, fmt.Sprintf("Service %d has caught up", n), func() bool {
				met := map[netip.Addr]bool{}
				for range 60 {
					endpoint, err := connectOnce(t, n)
					if err != nil {
						t.Fatal(err)
					}
					if met[endpoint] = true; !want[endpoint] {
						return false
					}
				}
				return len(met) == len(want)
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// usage is what the daemon occupies.
type usage struct {
	goroutines, descriptors int
	heapMB, residentMB      int
}

func (s *soak) usage(t *testing.T, d *process) usage {
	t.Helper()
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	const mb = 1 << 20
	return usage{
		goroutines: int(metric(t, s.bench.ns, "go_goroutines")), descriptors: len(descriptors),
		heapMB:     int(metric(t, s.bench.ns, "go_gc_heap_live_bytes")) / mb,
		residentMB: int(metric(t, s.bench.ns, "process_resident_memory_bytes")) / mb,
	}
}

// mustNotGrow compares with what is occupied later. What is allowed is what differs
// between two moments of a daemon at work.
func (u usage) mustNotGrow(t *testing.T, later usage) {
	t.Helper()
	if u.goroutines == 0 || u.residentMB == 0 {
		t.Error("the daemon does not say what it occupies")
	}
	if later.goroutines > u.goroutines+20 {
		t.Error("goroutines grow")
	}
	if later.descriptors > u.descriptors+10 {
		t.Error("descriptors grow")
	}
	if later.heapMB > u.heapMB+u.heapMB/2+10 || later.residentMB > u.residentMB+u.residentMB/3+30 {
		t.Error("memory grows")
	}
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/proxy"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	// syncLimit is how long a first sync, or the last change, may take to arrive.
	syncLimit = 10 * time.Minute
	// quiet is how long there must be no transaction until a sync counts as over.
	quiet = 3 * time.Second
)

// measurement is what it takes to measure a proxy.
type measurement struct {
	c       *cluster
	figures figures
	objects *bulk
	name    string
	host    *testnet.Host
	options proxy.Options
	proxy   *proxy.Proxy
}

// run starts the proxy, measures, and ends it.
func (m *measurement) run(t *testing.T) result {
	t.Helper()
	var r result
	binary, err := os.Stat(m.options.Program)
	must(t, err)
	r.binary = binary.Size()
	m.proxy = proxy.NewNFTProxy(m.options)
	if m.name == kubeProxy {
		m.proxy, err = proxy.NewKubeProxy(m.options)
		must(t, err)
	}
	defer func() {
		if t.Failed() {
			fmt.Fprintln(t.Output(), m.proxy.Tail(20))
		}
		if err := m.proxy.Kill(); err != nil {
			t.Error(err)
		}
	}()
	m.firstSync(t, &r)
	r.afterSync = m.memory(t)
	m.saveProfile(t, "heap-after-sync", "heap")
	commits := watchCommits(t, m.host.Namespace)
	defer commits.close()
	m.timed(t, commits, &r)
	m.saveProfile(t, "heap-after-timed", "heap")
	var profiling sync.WaitGroup
	profiling.Go(func() { m.saveProfile(t, "cpu", "profile?seconds=5") })
	before := m.cpu(t)
	m.apply(t, commits, make([]change, m.figures.all-m.figures.changes), m.figures.bulkRate)
	commits.wait(t, syncLimit)
	r.bulkCPU = m.cpu(t) - before
	r.afterAll = m.memory(t)
	profiling.Wait()
	m.saveProfile(t, "heap-after-all", "heap")
	must(t, m.proxy.Stop(t.Context()))
	return r
}

// firstSync starts the proxy and waits until the kernel has all Services, and there has
// been no transaction for a while: the last one ended the first sync.
//
// kube-proxy's /healthz says that it is healthy while its first sync is still to come.
func (m *measurement) firstSync(t *testing.T, r *result) {
	t.Helper()
	want := m.clusterIPs(t)
	begin := time.Now()
	must(t, m.proxy.Start(t.Context(), map[string]any{"enableProfiling": true}))
	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() { r.healthy = m.waitHealthy(ctx, begin) })
	defer asking.Wait()
	defer stop()
	listings := make(chan setListing, 1)
	var last, listed uint32 // generations
	for idle := begin; ; time.Sleep(2 * time.Millisecond) {
		now, err := generation(m.host.Namespace)
		must(t, err)
		if now != last {
			last, idle = now, time.Now()
			r.synced, r.syncedCPU = time.Since(begin), m.cpu(t)
		}
		if time.Since(begin) > syncLimit {
			t.Fatalf("the kernel never had %d Services", want)
		}
		select {
		case l := <-listings:
			if l.err == nil && l.count == want && l.generation == last {
				asking.Wait()
				return
			}
			if l.err != nil {
				listed = 0 // again: the rules may have changed while they were listed
			}
		default:
		}
		// The kernel lets a listing wait while it works on a transaction.
		if last != listed && time.Since(idle) > quiet {
			listed, idle = last, time.Now()
			asking.Go(func() {
				count, err := m.installed(ctx)
				listings <- setListing{now, count, err}
			})
		}
	}
}

// setListing is how many Services the kernel had some time after a generation.
type setListing struct {
	generation uint32
	count      int
	err        error
}

// clusterIPs returns how many Services have a ClusterIP of IPv4.
func (m *measurement) clusterIPs(t *testing.T) int {
	t.Helper()
	list, err := m.objects.client.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return len(list.Items)
}

// installed returns how many ClusterIPs the kernel knows: both proxies have a set of
// that name.
func (m *measurement) installed(ctx context.Context) (int, error) {
	text, err := m.host.Command(ctx, "", "nft", "-j", "list", "set", "ip", m.name, "cluster-ips")
	if err != nil {
		return 0, err
	}
	var list struct {
		Objects []struct {
			Set struct {
				Elements []any `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return 0, fmt.Errorf("read a listing: %w", err)
	}
	count := 0
	for _, o := range list.Objects {
		count += len(o.Set.Elements)
	}
	return count, nil
}

// waitHealthy returns how long it took until /healthz said that all is well.
func (m *measurement) waitHealthy(ctx context.Context, begin time.Time) time.Duration {
	for ctx.Err() == nil {
		if status, _, err := m.get(ctx, "127.0.0.1:10256", "/healthz"); err == nil && status == http.StatusOK {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(begin)
}

// get asks the proxy something over HTTP.
func (m *measurement) get(ctx context.Context, address, path string) (status int, body []byte, err error) {
	client := &http.Client{Transport: &http.Transport{DialContext: m.host.DialContext, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, errors.Join(err, response.Body.Close())
}

// saveProfile writes a profile of the proxy, where -artifacts keeps it.
func (m *measurement) saveProfile(t *testing.T, name, kind string) {
	t.Helper()
	status, profile, err := m.get(t.Context(), "127.0.0.1:10249", "/debug/pprof/"+kind)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.c.logs, m.name+"-"+name+".pprof"), profile, 0o644)
	}
	if err != nil || status != http.StatusOK {
		t.Errorf("profile %s: status %d, %v", kind, status, err)
	}
}

// timed makes changes at a steady rate and notes when the kernel has them.
func (m *measurement) timed(t *testing.T, commits *commits, r *result) {
	t.Helper()
	r.changes = make([]change, m.figures.changes)
	cpu, count := m.cpu(t), commits.count()
	m.apply(t, commits, r.changes, m.figures.rate)
	commits.wait(t, syncLimit)
	time.Sleep(still) // what is done after the commit
	r.cpu, r.commits = m.cpu(t)-cpu, commits.count()-count
	load, err := os.ReadFile("/proc/loadavg")
	must(t, err)
	r.load, _, _ = strings.Cut(string(load), " ")
	for i := range r.changes {
		r.changes[i].committed = commits.at(r.changes[i].address)
	}
}

// apply makes changes at a steady rate, several at a time if need be.
func (m *measurement) apply(t *testing.T, commits *commits, changes []change, rate int) {
	t.Helper()
	begin := time.Now()
	must(t, inParallel(len(changes), func(i int) error {
		changes[i] = m.objects.next()
		commits.await(changes[i].address)
		time.Sleep(time.Until(begin.Add(time.Second * time.Duration(i) / time.Duration(rate))))
		return m.objects.apply(t.Context(), &changes[i])
	}))
}

// memory is resident memory in bytes: now, and at its peak.
type memory struct{ now, peak int64 }

// memory reads /proc/PID/status (proc(5)).
func (m *measurement) memory(t *testing.T) memory {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.proxy.PID()))
	must(t, err)
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":")
		value, _, _ := strings.Cut(strings.TrimSpace(rest), " kB")
		n, err := strconv.ParseInt(value, 10, 64)
		must(t, err)
		return n << 10
	}
	return memory{field("VmRSS"), field("VmHWM")}
}

// cpu returns the processor time of the proxy so far, and of the programs that it has
// run: kube-proxy runs nft. /proc/PID/stat has it in clock ticks, of which there are 100
// a second.
func (m *measurement) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.proxy.PID()))
	must(t, err)
	_, rest, _ := strings.Cut(string(text), ") ") // field 2 is the name
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(field, 10, 64)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

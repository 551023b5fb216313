// Package proxy runs a Service proxy on a node of the test network: nftproxy, or
// kube-proxy, its peer.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/process"
)

// stopLimit is how long a proxy may take to end.
const stopLimit = 10 * time.Second

// clusterCIDRs are the addresses of the cluster's pods.
const clusterCIDRs = "10.244.0.0/16,fd00:10:244::/48"

// Options say what to run, and where.
type Options struct {
	// Program is the path of the proxy.
	Program string
	// Namespace is the node's, Node its name in the cluster.
	Namespace *namespace.Namespace
	Node      string
	// Kubeconfig and Manifests say where the objects are: one of them is set.
	Kubeconfig, Manifests string
	// Dir holds the configuration, LogDir the program's output.
	Dir, LogDir string
}

// Proxy is a proxy on a node, running or not. Its methods are for one goroutine.
type Proxy struct {
	options Options
	program program
	process *process.Process // nil while stopped
	ended   chan struct{}    // closed: what Ended returns while stopped
}

// program is what differs between the proxies.
type program interface {
	// defaults returns the configuration to start from.
	defaults() map[string]any
	// args returns the arguments for a configuration, which is in a file.
	args(file string) []string
	// checkExit says what is wrong with the exit code after SIGTERM.
	checkExit(code int) error
}

func newProxy(options Options, p program) *Proxy {
	ended := make(chan struct{})
	close(ended)
	return &Proxy{options: options, program: p, ended: ended}
}

// Start starts the proxy with fields of a KubeProxyConfiguration changed.
func (p *Proxy) Start(_ context.Context, config map[string]any) error {
	if p.process != nil {
		return errors.New("start the proxy: it has been started")
	}
	data, err := json.Marshal(object.Merge(p.program.defaults(), config))
	if err != nil {
		return fmt.Errorf("encode the proxy's configuration: %w", err)
	}
	file := filepath.Join(p.options.Dir, "proxy-config.json") // JSON is YAML
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("write the proxy's configuration: %w", err)
	}
	p.process, err = process.Start(p.options.Namespace, process.Config{
		Path:    p.options.Program,
		Args:    p.program.args(file),
		LogFile: p.logFile(),
	})
	return err
}

// Stop asks the proxy to end and waits for that; how it ended is judged. A proxy
// that was not started is no error.
func (p *Proxy) Stop(ctx context.Context) error {
	if p.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	stopping := p.process
	p.process = nil
	code, err := stopping.Stop(ctx)
	if err != nil {
		return err
	}
	if err := p.program.checkExit(code); err != nil {
		return fmt.Errorf("%w; its output ends with:\n%s", err, stopping.Tail(10))
	}
	return nil
}

// Kill ends the proxy at once.
func (p *Proxy) Kill() error {
	if p.process == nil {
		return nil
	}
	killing := p.process
	p.process = nil
	return killing.Kill()
}

// Ended is closed when the proxy does not run.
func (p *Proxy) Ended() <-chan struct{} {
	if p.process == nil {
		return p.ended
	}
	return p.process.Exited()
}

// PID is the process number of the proxy, 0 while it does not run.
func (p *Proxy) PID() int {
	if p.process == nil {
		return 0
	}
	return p.process.PID()
}

// Tail returns the last lines of the proxy's output.
func (p *Proxy) Tail(lines int) string {
	if p.process == nil {
		return "the proxy does not run"
	}
	return fmt.Sprintf("%s (%s):\n%s", p.process.Name(), p.process.State(), p.process.Tail(lines))
}

func (p *Proxy) logFile() string {
	return filepath.Join(p.options.LogDir, filepath.Base(p.options.Program)+".log")
}

// defaults is what both proxies are told.
func defaults(options Options) map[string]any {
	config := map[string]any{
		"apiVersion":       "kubeproxy.config.k8s.io/v1alpha1",
		"kind":             "KubeProxyConfiguration",
		"mode":             "nftables",
		"hostnameOverride": options.Node,
		"clusterCIDR":      clusterCIDRs,
		// The node is a namespace of its own: its loopback ports are free.
		"healthzBindAddress": "127.0.0.1:10256",
		"metricsBindAddress": "127.0.0.1:10249",
		// The limits of conntrack belong to the machine, and can only be set in
		// its own namespace.
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
	}
	if options.Kubeconfig != "" {
		config["clientConnection"] = map[string]any{"kubeconfig": options.Kubeconfig}
	}
	return config
}

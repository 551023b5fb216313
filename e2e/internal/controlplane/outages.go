package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// Snapshot copies what etcd holds, for Restore. The API server and etcd are stopped
// meanwhile, and serve again when it returns.
func (c *ControlPlane) Snapshot(ctx context.Context) error {
	return c.withoutEtcd(ctx, func(data, snapshot string) error {
		return os.CopyFS(snapshot, os.DirFS(data))
	})
}

// Restore makes etcd hold what it held at the Snapshot. All that was written since is
// lost, and resource versions are given a second time.
func (c *ControlPlane) Restore(ctx context.Context) error {
	return c.withoutEtcd(ctx, func(data, snapshot string) error {
		return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(snapshot)))
	})
}

// withoutEtcd does something while neither etcd nor the API server run.
func (c *ControlPlane) withoutEtcd(ctx context.Context, do func(data, snapshot string) error) error {
	if err := errors.Join(c.CrashAPIServer(), c.stopEtcd(ctx)); err != nil {
		return err
	}
	if err := do(c.etcdData(), filepath.Join(c.options.Dir, "etcd-snapshot")); err != nil {
		return fmt.Errorf("copy the data of etcd: %w", err)
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

func (c *ControlPlane) etcdData() string { return filepath.Join(c.options.Dir, "etcd") }

// Stall makes packets from elsewhere to the API server vanish, and those to elsewhere:
// connections stay open, and nothing arrives any more. Unstall ends that.
func (c *ControlPlane) Stall(ctx context.Context) error {
	_, err := c.ns.Command(ctx, fmt.Sprintf(`table inet stall {
	chain in { type filter hook input priority 0; iif != "lo" tcp dport %[1]d drop; }
	chain out { type filter hook output priority 0; oif != "lo" tcp sport %[1]d drop; }
}`, apiServerPort), "nft", "-f", "-")
	return err
}

// Unstall lets packets to the API server arrive again.
func (c *ControlPlane) Unstall(ctx context.Context) error {
	_, err := c.ns.Command(ctx, "", "nft", "delete", "table", "inet", "stall")
	return err
}

// ForgetHistory restarts the API server, and has etcd forget what was before: a client
// that asks for what has changed since is told that its version is too old (410 Gone).
func (c *ControlPlane) ForgetHistory(ctx context.Context) error {
	if err := c.CrashAPIServer(); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: c.ns.DialContext}}
	defer client.CloseIdleConnections()
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := ask(ctx, client, "/v3/kv/range", map[string]string{"key": "AA=="}, &status); err != nil {
		return err
	}
	if err := ask(ctx, client, "/v3/kv/compaction", map[string]string{"revision": status.Header.Revision}, &struct{}{}); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// ask sends a request to etcd's JSON gateway.
func ask(ctx context.Context, client *http.Client, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", path, response.Status)
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("etcd: %s: %w", path, err)
	}
	return nil
}

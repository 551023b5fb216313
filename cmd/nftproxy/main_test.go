package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// nftproxy runs a command line.
func nftproxy(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// write writes a manifest into a new folder and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const goodService = `
apiVersion: v1
kind: Service
metadata: {name: good, namespace: default}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
`

const brokenConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
nftables: {masqueradeBit: 33}
metricsBindAddress: nowhere
nodePortAddresses: [Primary]
`

// TestBadInput says for every mistake the exit status and what is printed on
// standard error, in one line.
func TestBadInput(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	manifest := func(text string) string { return write(t, text) }
	good := manifest(goodService)
	tests := map[string]struct {
		args   []string
		status int
		stderr []string // what the line must contain
	}{
		"unknown flag":          {[]string{"run", "--manifest", good}, exitUsage, []string{"unknown flag: --manifest"}},
		"unknown command":       {[]string{"start"}, exitUsage, []string{`unknown command "start"`}},
		"an argument":           {[]string{"dump", good}, exitUsage, []string{"unexpected argument", good}},
		"a flag without value":  {[]string{"dump", "--manifests"}, exitUsage, []string{"flag needs an argument: --manifests"}},
		"no source":             {[]string{"run"}, exitUsage, []string{"give --kubeconfig FILE"}},
		"both sources":          {[]string{"dump", "--manifests", good, "--kubeconfig", good}, exitUsage, []string{"either --manifests or --kubeconfig"}},
		"blank node name":       {[]string{"dump", "--manifests", good, "--hostname-override", " "}, exitUsage, []string{"--hostname-override: it is blank"}},
		"unknown output":        {[]string{"dump", "--manifests", good, "-o", "xml"}, exitUsage, []string{`"xml" is neither nft nor json`}},
		"JSON of a batch":       {[]string{"dump", "--manifests", good, "-o", "json", "--against", good}, exitUsage, []string{"--against prints nft commands"}},
		"a bad range":           {[]string{"dump", "--manifests", good, "--cluster-cidr", "10.244.0.0/16,10.2"}, exitUsage, []string{`--cluster-cidr: "10.2"`}},
		"unknown log format":    {[]string{"run", "--manifests", good, "--logging-format", "xml"}, exitUsage, []string{"--logging-format", `"xml"`}},
		"verbosity":             {[]string{"run", "--manifests", good, "-v", "much"}, exitUsage, []string{`"much"`, "--v"}},
		"missing configuration": {[]string{"run", "--config", good + "x"}, exitError, []string{good + "x", "no such file"}},
		"another kind of file":  {[]string{"run", "--config", good}, exitError, []string{"cluster.yaml", "kind"}},
		"all that is wrong": {[]string{"run", "--config", manifest(brokenConfig)}, exitError, []string{
			"nftables.masqueradeBit", "33", "metricsBindAddress", "nodePortAddresses", "Primary",
		}},
		"missing path":          {[]string{"dump", "--manifests", good + "x"}, exitError, []string{good + "x", "no such file"}},
		"missing kubeconfig":    {[]string{"dump", "--kubeconfig", good + "x"}, exitError, []string{good + "x", "no such file"}},
		"broken kubeconfig":     {[]string{"dump", "--kubeconfig", good}, exitError, []string{good}},
		"broken YAML":           {[]string{"dump", "--manifests", manifest("a: [")}, exitError, []string{"cluster.yaml", "yaml"}},
		"not an object":         {[]string{"dump", "--manifests", manifest("just: text")}, exitError, []string{"cluster.yaml", "document 1", "kind"}},
		"a bad address":         {[]string{"dump", "--manifests", manifest(strings.ReplaceAll(goodService, "10.96.0.1", "10.96.0.256"))}, exitError, []string{"cluster.yaml", "spec.clusterIP", "10.96.0.256"}},
		"a port out of range":   {[]string{"dump", "--manifests", manifest(strings.ReplaceAll(goodService, "port: 80", "port: 70000"))}, exitError, []string{"cluster.yaml", "spec.ports[0].port", "70000"}},
		"missing other path":    {[]string{"dump", "--manifests", good, "--against", good + "x"}, exitError, []string{good + "x", "no such file"}},
		"not in a pod, no file": {[]string{"run", "--hostname-override", "a"}, exitUsage, []string{"give --kubeconfig FILE"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status, _, stderr := nftproxy(test.args...)
			if status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			line, rest, _ := strings.Cut(stderr, "\n")
			if !strings.HasPrefix(line, "nftproxy: ") {
				t.Errorf("standard error: %q", stderr)
			}
			for _, want := range test.stderr {
				if !strings.Contains(line, want) {
					t.Errorf("standard error: %q, want %q in it", line, want)
				}
			}
			if test.status == exitUsage && rest != "Try `nftproxy --help`.\n" || test.status == exitError && rest != "" {
				t.Errorf("standard error goes on with %q", rest)
			}
		})
	}
}

// TestOneBadObject is reported, and the rest is printed all the same.
func TestOneBadObject(t *testing.T) {
	bad := strings.NewReplacer("good", "bad", "10.96.0.1", "10.96.0.999").Replace(goodService)
	status, stdout, stderr := nftproxy("dump", "--manifests", write(t, bad+"---"+goodService))
	if status != exitError || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "10.96.0.999") {
		t.Errorf("status %d, standard error %q", status, stderr)
	}
	if !strings.Contains(stdout, `10.96.0.1 . tcp . 80 comment "default/good"`) {
		t.Errorf("the good Service is missing:\n%s", stdout)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"run", "--help"}, {"dump", "--help"}, {"demo", "--help"}, {"version", "--help"}} {
		status, stdout, stderr := nftproxy(args...)
		if status != exitOK || stderr != "" || !strings.Contains(stdout, "Examples:\n  nftproxy ") {
			t.Errorf("nftproxy %v: status %d, standard error %q:\n%s", args, status, stderr, stdout)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}, {"run", "--version"}, {"run", "--version", "--config", "/nonexistent"}} {
		status, stdout, _ := nftproxy(args...)
		if status != exitOK || !strings.HasPrefix(stdout, "nftproxy ") || !strings.Contains(stdout, "linux/") || strings.Count(stdout, "\n") != 1 {
			t.Errorf("nftproxy %v: status %d, %q", args, status, stdout)
		}
	}
}

// TestDump compares what dump prints with testdata/dump.txtar, which holds two
// states of a cluster; nft must load all of it.
func TestDump(t *testing.T) {
	const golden = "testdata/dump.txtar"
	archive, err := txtar.ParseFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before, after := filepath.Join(dir, "before.yaml"), filepath.Join(dir, "after.yaml")
	options := []string{"--hostname-override", "node1", "--cluster-cidr", "10.244.0.0/16", "--manifests", before}
	outputs := map[string][]string{
		"before.nft": append([]string{"dump"}, options...),
		"batch.nft":  append([]string{"dump", "--against", after}, options...),
	}
	for i, f := range archive.Files {
		args, ok := outputs[f.Name]
		if !ok {
			continue
		}
		status, stdout, stderr := nftproxy(args...)
		if status != exitOK {
			t.Fatalf("nftproxy %v: status %d, %s", args, status, stderr)
		}
		if f.Name == "batch.nft" && stderr != "9 element operations (2 with a verdict), 0 object operations\n" {
			t.Errorf("standard error: %q", stderr)
		}
		if diff := cmp.Diff(string(f.Data), stdout); diff != "" && !*update {
			t.Errorf("%s (want -, got +):\n%s", f.Name, diff)
		}
		archive.Files[i].Data = []byte(stdout)
	}
	if *update {
		if err := os.WriteFile(golden, txtar.Format(archive), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	checkBatchLeadsTo(t, archive, after)
}

// checkBatchLeadsTo loads the first state and the batch with nft: the result must
// be the second state, but for chains that are not used any more.
func checkBatchLeadsTo(t *testing.T, archive *txtar.Archive, after string) {
	t.Helper()
	var commands strings.Builder
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, ".nft") {
			commands.Write(f.Data)
		}
	}
	_, want, _ := nftproxy("dump", "--hostname-override", "node1", "--cluster-cidr", "10.244.0.0/16", "--manifests", after)
	got, wanted := nstest.New(t), nstest.New(t)
	got.MustNFT(t, commands.String(), "-f", "-")
	wanted.MustNFT(t, want, "-f", "-")
	listing := slices.DeleteFunc(got.Listing(t), func(line string) bool {
		return strings.Contains(line, `"random-1"`) && strings.Contains(line, `"ip6"`) // nothing refers to it any more
	})
	if diff := cmp.Diff(wanted.Listing(t), listing); diff != "" {
		t.Errorf("the batch leads to (+), want (-):\n%s", diff)
	}
}

func TestDumpJSON(t *testing.T) {
	status, stdout, stderr := nftproxy("dump", "-o", "json", "--manifests", write(t, goodService))
	var listing struct {
		Objects []map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(stdout), &listing); err != nil || status != exitOK || len(listing.Objects) < 40 {
		t.Errorf("status %d, error %v, %d objects, standard error %q", status, err, len(listing.Objects), stderr)
	}
}

func TestDumpAgainstItself(t *testing.T) {
	path := write(t, goodService)
	status, stdout, stderr := nftproxy("dump", "--manifests", path, "--against", path)
	if status != exitOK || stdout != "" || stderr != "0 element operations (0 with a verdict), 0 object operations\n" {
		t.Errorf("status %d, standard output %q, standard error %q", status, stdout, stderr)
	}
}

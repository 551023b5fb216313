package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
)

// The names of the proxies that are compared.
const (
	proxyOurs = "nftproxy"
	proxyPeer = "peer"
)

// ourCommand is how this program's daemon is started.
const ourCommand = "/proc/self/exe run --config {config}"

// benchPeer are the flags that name another proxy.
type benchPeer struct {
	command, mode, only string
}

func (p *benchPeer) add(flags *pflag.FlagSet) {
	flags.StringVar(&p.command, "peer", "", "`command` of the other proxy, split at spaces; {config} is the path of a KubeProxyConfiguration, {kubeconfig} of a kubeconfig file")
	flags.StringVar(&p.mode, "peer-mode", bench.ModeNFTables, "`mode` in the other proxy's configuration")
	flags.StringVar(&p.only, "only", "", "measure one `proxy` alone, nftproxy or peer, and print its part of the result in JSON")
}

// check returns an error unless the flags are usable.
func (p *benchPeer) check() error {
	if !slices.Contains([]string{"", proxyOurs, proxyPeer}, p.only) {
		return usagef("--only: %q is neither %s nor %s", p.only, proxyOurs, proxyPeer)
	}
	if p.command == "" && p.only != proxyPeer {
		return nil
	}
	if err := bench.CheckPeer(p.command); err != nil {
		return usagef("--peer: %w", err)
	}
	if _, err := exec.LookPath(strings.Fields(p.command)[0]); err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	return nil
}

// proxies returns the names of the proxies that are measured.
func (p *benchPeer) proxies() []string {
	if p.command == "" {
		return []string{proxyOurs}
	}
	return []string{proxyOurs, proxyPeer}
}

// options returns what is measured in the namespace of this process, where one proxy runs.
func (p *benchPeer) options(cmd *cobra.Command, spec bench.Spec) bench.ProxyOptions {
	opts := bench.ProxyOptions{
		Spec: spec, Name: proxyOurs, Command: ourCommand, Mode: bench.ModeNFTables,
		Version: versionString(), Progress: cmd.ErrOrStderr(),
	}
	if p.only == proxyPeer {
		opts.Name, opts.Command, opts.Mode = filepath.Base(strings.Fields(p.command)[0])+" "+p.mode, p.command, p.mode
	}
	opts.Spec.Families = enabledFamilies() // those in here
	return opts
}

// launch runs a command in a process and namespaces of its own, and decodes what it
// prints into result.
func launch(cmd *cobra.Command, args []string, result any) error {
	var stdout bytes.Buffer
	if err := sandbox.Launch(cmd.Context(), args, &stdout, cmd.ErrOrStderr()); err != nil {
		if errors.Is(err, sandbox.ErrReported) {
			err = errReported
		}
		return err //nolint:wrapcheck // says it all
	}
	if err := json.Unmarshal(stdout.Bytes(), result); err != nil {
		return fmt.Errorf("read what %q has measured: %w", strings.Join(args, " "), err)
	}
	return nil
}

// printJSON prints what launch reads.
func printJSON(cmd *cobra.Command, result any) error {
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// flagsBut returns the flags that a command was given, but for those with the names.
func flagsBut(cmd *cobra.Command, names ...string) (args []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if !slices.Contains(names, f.Name) {
			args = append(args, "--"+f.Name+"="+value)
		}
	})
	return args
}

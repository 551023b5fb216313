package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases; see the Makefile.
var version string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  nftproxy version",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

// addVersionFlag makes --version print the version and end, as kube-proxy's does. Cobra's
// own flag needs a template, which makes the binary larger.
func addVersionFlag(cmd *cobra.Command) {
	asked := cmd.Flags().Bool("version", false, "print the version, and end")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return printVersion(cmd)
		}
		return run(cmd, args)
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "nftproxy %s, %s, %s/%s\n", versionString(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err //nolint:wrapcheck // of standard output
}

// versionString returns the version of the linker or of the module, which `go
// install` of a released version knows.
func versionString() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

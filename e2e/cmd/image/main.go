// Command image packs programs for several architectures into one OCI image:
//
//	image -tag v0.1.0 -out image.tar amd64=PROGRAM arm64=PROGRAM
//
// It prints the image's name with its digest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/e2e/internal/image"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	repository := flags.String("repository", "ghcr.io/nftproxy/nftproxy", "the image's `name` without a tag")
	tag := flags.String("tag", "", "the image's `tag`, the version of the program")
	out := flags.String("out", "", "the `file` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *tag == "" || *out == "" {
		return errors.New("give -tag and -out")
	}
	options := image.Options{Version: *tag, Programs: map[string]string{}}
	for _, arg := range flags.Args() {
		arch, program, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form ARCHITECTURE=PROGRAM", arg)
		}
		options.Programs[arch] = program
	}
	index, err := image.Build(options)
	if err != nil {
		return err
	}
	if err := image.WriteArchive(index, *repository, *tag, *out); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("compute the digest: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "%s:%s@%s\n", *repository, *tag, digest)
	return err
}

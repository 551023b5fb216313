// Package nodesetup brings settings of the node to what the configuration asks for:
// those of the kernel's connection tracking, and how readily the kernel kills this
// process when memory runs out.
//
// They are kube-proxy's, with the same rules. It ends when it cannot write one; here
// each is an error of its own and the rest goes on, since a process that may not write
// to /proc/sys serves all the same.
package nodesetup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
)

// maxEntries bounds what follows from the number of CPUs.
const maxEntries = 1 << 20

// Setup writes settings below the root of a file system.
type Setup struct {
	Root string // "/" but for tests
	CPUs int
}

// Conntrack applies the settings of connection tracking. Only what differs is written.
// The error joins one for each setting that could not be written.
func (s Setup) Conntrack(c config.Conntrack) error {
	errs := []error{s.raiseMax(c)}
	for _, timeout := range []struct {
		name   string
		length time.Duration
	}{
		{"nf_conntrack_tcp_timeout_established", c.TCPEstablishedTimeout},
		{"nf_conntrack_tcp_timeout_close_wait", c.TCPCloseWaitTimeout},
		{"nf_conntrack_udp_timeout", c.UDPTimeout},
		{"nf_conntrack_udp_timeout_stream", c.UDPStreamTimeout},
	} {
		if seconds := int(timeout.length / time.Second); seconds > 0 {
			errs = append(errs, s.set(sysctl(timeout.name), seconds))
		}
	}
	if c.TCPBeLiberal {
		errs = append(errs, s.set(sysctl("nf_conntrack_tcp_be_liberal"), 1))
	}
	return errors.Join(errs...)
}

// raiseMax allows for as many entries as wanted, and sizes the hash table for them: four
// entries a bucket.
func (s Setup) raiseMax(c config.Conntrack) error {
	if c.MaxPerCore == 0 {
		return nil
	}
	entries := min(max(c.MaxPerCore*s.CPUs, c.Min), maxEntries)
	now, err := s.get(sysctl("nf_conntrack_max"))
	if err != nil || now >= entries {
		return err
	}
	if err := s.set(sysctl("nf_conntrack_max"), entries); err != nil {
		return err
	}
	const hashSize = "sys/module/nf_conntrack/parameters/hashsize"
	buckets, err := s.get(hashSize)
	if err != nil || buckets >= entries/4 {
		return err
	}
	return s.set(hashSize, entries/4)
}

// OOMScoreAdj sets how readily the kernel kills this process: -1000..1000.
func (s Setup) OOMScoreAdj(score int) error { return s.set("proc/self/oom_score_adj", score) }

func sysctl(name string) string { return "proc/sys/net/netfilter/" + name }

// set writes a number unless it is there already.
func (s Setup) set(name string, value int) error {
	now, err := s.get(name)
	if err != nil || now == value {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Root, name), []byte(strconv.Itoa(value)), 0o644); err != nil {
		return fmt.Errorf("set %s from %d to %d: %w", filepath.Base(name), now, value, err)
	}
	return nil
}

func (s Setup) get(name string) (int, error) {
	text, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		return 0, fmt.Errorf("read the setting %s: %w", filepath.Base(name), err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read the setting %s: %w", filepath.Base(name), err)
	}
	return value, nil
}

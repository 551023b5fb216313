package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where something was measured, and with what.
type Machine struct {
	Version string `json:"version"` // of nftproxy
	Go      string `json:"go"`
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"` // that Go uses
	// Load is the load average of the last minute, at the beginning: what else ran.
	Load string `json:"load_average"`
	// UserNamespace says that it was measured in a user namespace, where a batch is bounded
	// by net.core.wmem_max.
	UserNamespace bool `json:"user_namespace"`
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine(version string) Machine {
	m := Machine{Version: version, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), CPU: runtime.GOARCH}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if model := lineOf("/proc/cpuinfo", "model name"); model != "" {
		m.CPU = model
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	if ids, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		// The initial namespace has all IDs: user_namespaces(7).
		m.UserNamespace = strings.Join(strings.Fields(string(ids)), " ") != "0 0 4294967295"
	}
	return m
}

// lineOf returns the value of the first line "name : value" of a file.
func lineOf(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// String returns the description in one line.
func (m Machine) String() string {
	text := "nftproxy " + m.Version + ", " + m.Go + ", Linux " + m.Kernel + ", " + m.CPU +
		", " + strconv.Itoa(m.CPUs) + " CPUs, load average " + m.Load
	if m.UserNamespace {
		text += ", in a user namespace (batches bounded by net.core.wmem_max)"
	}
	return text
}

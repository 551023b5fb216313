package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are kube-proxy's flags, under the same names. With --config the file
// counts, and of the other flags only those that kube-proxy does not ignore then:
// the flags for logging, --hostname-override and --master.
//
// The zero value is ready for Add. After the command line was parsed, Load returns
// the configuration.
type Flags struct {
	// ConfigFile is the path of the configuration file, empty if the flags count.
	ConfigFile string
	// WriteConfigTo is the path of the file to which the configuration shall be
	// written by Config.WriteFile, before the program ends; empty if it shall run.
	WriteConfigTo string
	// Cleanup asks to remove all rules and to end.
	Cleanup bool

	set              *pflag.FlagSet // these flags alone
	object           v1alpha1.KubeProxyConfiguration
	master           string
	hostnameOverride string
	healthzPort      int32
	metricsPort      int32
	syncPeriod       time.Duration
	minSyncPeriod    time.Duration
}

// Load returns the configuration of the file, or without --config of the flags. The
// error joins everything that is wrong with it; errors.As finds each FieldError.
func (f *Flags) Load() (*Config, error) {
	if f.ConfigFile == "" {
		return f.fromFlags()
	}
	data, err := read(f.ConfigFile)
	if err != nil {
		return nil, err
	}
	cfg, err := f.fromFile(data)
	if err != nil {
		return nil, err
	}
	if ignored := f.ignored(); len(ignored) > 0 {
		cfg.Warnings = append(cfg.Warnings, "the configuration file counts in place of these flags: "+strings.Join(ignored, ", "))
	}
	return cfg, nil
}

// fromFlags returns the configuration that the flags alone make.
func (f *Flags) fromFlags() (*Config, error) {
	object := f.object.DeepCopy()
	if f.WriteConfigTo == "" { // as kube-proxy does: a file cannot say that there is no health server
		object.HealthzBindAddress = addressWithPort(object.HealthzBindAddress, f.healthzPort)
		object.MetricsBindAddress = addressWithPort(object.MetricsBindAddress, f.metricsPort)
	}
	if f.changed("iptables-sync-period") {
		object.NFTables.SyncPeriod.Duration = f.syncPeriod
	}
	if f.changed("iptables-min-sync-period") {
		object.NFTables.MinSyncPeriod.Duration = f.minSyncPeriod
	}
	object.HostnameOverride = f.hostnameOverride
	setModeDefaults(object)
	cfg, err := resolve(object, f.nameOf)
	if err != nil {
		return nil, err
	}
	cfg.ClientConnection.Master = f.master
	for _, name := range []string{"boot-id-file", "machine-id-file"} {
		if f.changed(name) {
			cfg.Warnings = append(cfg.Warnings, "--"+name+" has no meaning for nftproxy")
		}
	}
	return cfg, nil
}

// addressWithPort is what kube-proxy makes of its deprecated flags for ports: 0
// means that there is no server.
func addressWithPort(address string, port int32) string {
	if port == 0 {
		return ""
	}
	return withPort(address, int(port))
}

// fromFile returns the configuration of a file's content, and of the flags that
// override it.
func (f *Flags) fromFile(data []byte) (*Config, error) {
	cfg, err := parse(data, f.override, f.nameOf)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", f.ConfigFile, err)
	}
	cfg.ClientConnection.Master = f.master
	return cfg, nil
}

// override sets what was set by flags that count beside a file.
func (f *Flags) override(c *v1alpha1.KubeProxyConfiguration) {
	if f.hostnameOverride != "" {
		c.HostnameOverride = f.hostnameOverride
	}
	from, to := &f.object.Logging, &c.Logging
	for name, set := range map[string]func(){
		"logging-format":            func() { to.Format = from.Format },
		"log-flush-frequency":       func() { to.FlushFrequency = from.FlushFrequency },
		"v":                         func() { to.Verbosity = from.Verbosity },
		"vmodule":                   func() { to.VModule = slices.Concat(from.VModule, to.VModule) },
		"log-text-split-stream":     func() { to.Options.Text.SplitStream = from.Options.Text.SplitStream },
		"log-text-info-buffer-size": func() { to.Options.Text.InfoBufferSize = from.Options.Text.InfoBufferSize },
		"log-json-split-stream":     func() { to.Options.JSON.SplitStream = from.Options.JSON.SplitStream },
		"log-json-info-buffer-size": func() { to.Options.JSON.InfoBufferSize = from.Options.JSON.InfoBufferSize },
	} {
		if f.changed(name) {
			set()
		}
	}
}

func (f *Flags) changed(name string) bool { return f.set.Lookup(name).Changed }

// ignored returns the flags that are set but do not count beside a file.
func (f *Flags) ignored() []string {
	var names []string
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && !besideFile(flag.Name) {
			names = append(names, "--"+flag.Name)
		}
	})
	return names
}

// besideFile reports whether a flag counts beside a configuration file.
func besideFile(name string) bool {
	switch name {
	case "config", "write-config-to", "cleanup", "hostname-override", "master", "logging-format", "v", "vmodule":
		return true
	default:
		return strings.HasPrefix(name, "log-")
	}
}

// nameOf returns the flag that a field's value came from, or the path of the field
// if it came from a file.
func (f *Flags) nameOf(field string) string {
	if gate, ok := strings.CutPrefix(field, "featureGates."); ok && f.ConfigFile == "" {
		return "--feature-gates " + gate
	}
	path, _, _ := strings.Cut(field, "[")
	name := flagFields()[path]
	if name == "" || f.ConfigFile != "" && (!besideFile(name) || !f.changed(name)) {
		return field
	}
	return "--" + name
}

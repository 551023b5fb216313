package zpages

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
)

// Options are what the pages tell. Handler needs all fields but those that say what
// they are without.
type Options struct {
	// Component is the name of the program.
	Component string
	Version   string
	// Started is when the process began.
	Started time.Time
	// Clock is the time. nil: the system's.
	Clock clock.PassiveClock
	// Metrics answers /metrics.
	Metrics http.Handler
	// Config returns the configuration that is in force, which encoding/json has to be
	// able to write.
	Config func() any
	// Flags are the flags of the command that runs. The value of a flag with the
	// annotation "classified" is not shown.
	Flags *pflag.FlagSet
	// Profiling says whether there are profiles. They show the memory of the process,
	// and taking one costs time.
	Profiling bool
}

const (
	// configKey is the name under which tools look for the configuration.
	configKey = "kubeproxy.config.k8s.io"
	// proxyMode is what kube-proxy calls what this proxy does.
	proxyMode = "nftables"
	// classified is component-base's annotation of flags that hold a secret.
	classified = "classified"
	// notForMachines is what component-base writes on such pages.
	notForMachines = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees " +
		"and is for debugging purposes only."
)

// Handler returns what answers for all pages.
func Handler(opts Options) http.Handler {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	pages := map[string]http.HandlerFunc{
		"/metrics":      opts.Metrics.ServeHTTP,
		"/healthz":      text(func(w io.Writer) { _, _ = io.WriteString(w, "ok") }),
		"/healthz/ping": text(func(w io.Writer) { _, _ = io.WriteString(w, "ok") }),
		"/proxyMode":    text(func(w io.Writer) { _, _ = io.WriteString(w, proxyMode) }),
		"/configz":      opts.configz,
		"/flagz":        text(opts.flagz),
	}
	if opts.Profiling {
		pages["/debug/pprof/"] = pprof.Index // and the profiles that it lists
		pages["/debug/pprof/cmdline"] = pprof.Cmdline
		pages["/debug/pprof/profile"] = pprof.Profile
		pages["/debug/pprof/symbol"] = pprof.Symbol
		pages["/debug/pprof/trace"] = pprof.Trace
	}
	paths := topLevel(pages)
	pages["/statusz"] = text(func(w io.Writer) { opts.statusz(w, paths) })
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.HandleFunc(path, page)
	}
	return mux
}

// topLevel returns the first parts of the paths, sorted, each once, as statusz lists
// them.
func topLevel(pages map[string]http.HandlerFunc) []string {
	paths := []string{"/statusz"}
	for path := range pages {
		paths = append(paths, "/"+strings.Split(path, "/")[1])
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// text makes a page of plain text. Who asked may have gone: what cannot be written is
// no error.
func text(write func(w io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		write(w)
	}
}

func (o Options) configz(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(map[string]any{configKey: o.Config()})
	if err != nil {
		http.Error(w, fmt.Sprintf("the configuration cannot be shown: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

func (o Options) flagz(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%s flagz\n%s\n\n", o.Component, notForMachines)
	o.Flags.VisitAll(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if len(flag.Annotations[classified]) > 0 {
			value = "CLASSIFIED"
		}
		_, _ = fmt.Fprintf(w, "%s=%s\n", flag.Name, value)
	})
}

func (o Options) statusz(w io.Writer, paths []string) {
	up := o.Clock.Since(o.Started).Truncate(time.Second)
	_, _ = fmt.Fprintf(w, "\n%s statusz\n%s\n\n", o.Component, notForMachines)
	_, _ = fmt.Fprintf(w, "Started: %s\n", o.Started.UTC().Format(time.UnixDate))
	_, _ = fmt.Fprintf(w, "Up: %d hr %02d min %02d sec\n", int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60)
	_, _ = fmt.Fprintf(w, "Go version: %s\nBinary version: %s\nPaths: %s\n", runtime.Version(), o.Version, strings.Join(paths, " "))
}

package config

import (
	"math"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// loggingAlphaOptions is the feature gate of logging.options.
const loggingAlphaOptions = "LoggingAlphaOptions"

// logging checks all that kube-proxy checks, also in fields without a meaning here.
func (r *resolver) logging(c *v1alpha1.KubeProxyConfiguration) Logging {
	l := &c.Logging
	format := LogFormat(l.Format)
	if format != LogText && format != LogJSON {
		r.refuse("logging.format", "%q is neither text nor json", l.Format)
	}
	if d := l.FlushFrequency.Duration.Duration; d <= 0 {
		r.refuse("logging.flushFrequency", "%s is not above 0", d)
	}
	r.verbosity("logging.verbosity", l.Verbosity)
	if len(l.VModule) > 0 && format == LogJSON {
		r.refuse("logging.vmodule", "it is allowed in the format text alone")
	}
	for i, item := range l.VModule {
		field := indexed("logging.vmodule", i)
		switch {
		case item.FilePattern == "":
			r.refuse(field+".filePattern", "it is empty")
		case strings.ContainsAny(item.FilePattern, "=,"):
			r.refuse(field+".filePattern", "%q has an equals sign or a comma", item.FilePattern)
		}
		r.verbosity(field+".verbosity", item.Verbosity)
	}
	if !c.FeatureGates[loggingAlphaOptions] {
		r.noLogOptions("logging.options.text", l.Options.Text.OutputRoutingOptions)
		r.noLogOptions("logging.options.json", l.Options.JSON.OutputRoutingOptions)
	}
	return Logging{Format: format, Verbosity: int(min(l.Verbosity, MaxVerbosity))}
}

func (r *resolver) verbosity(field string, level logsapi.VerbosityLevel) {
	if level > math.MaxInt32 {
		r.refuse(field, "%d is above %d", level, math.MaxInt32)
	}
}

func (r *resolver) noLogOptions(field string, o logsapi.OutputRoutingOptions) {
	if o.SplitStream {
		r.refuse(field+".splitStream", "the feature gate %s is off", loggingAlphaOptions)
	}
	if o.InfoBufferSize.Value() != 0 {
		r.refuse(field+".infoBufferSize", "the feature gate %s is off", loggingAlphaOptions)
	}
}

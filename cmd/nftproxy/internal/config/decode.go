package config

import (
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const kind = "KubeProxyConfiguration"

// Load reads the configuration from a file, in YAML or JSON. The error joins
// everything that is wrong with it; errors.As finds each FieldError.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	cfg, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return cfg, nil
}

func read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w: give a file that this process may read", err)
	}
	return data, nil
}

// Parse reads the configuration from the content of a file, as Load does.
func Parse(data []byte) (*Config, error) {
	return parse(data, func(*v1alpha1.KubeProxyConfiguration) {}, func(field string) string { return field })
}

// parse is Parse with settings that override those of the file, and with what the
// operator calls a field.
func parse(data []byte, override func(*v1alpha1.KubeProxyConfiguration), name func(field string) string) (*Config, error) {
	object, lenient, err := decode(data)
	if err != nil {
		return nil, err
	}
	setDefaults(object)
	override(object)
	setModeDefaults(object)
	cfg, err := resolve(object, name)
	if err != nil {
		return nil, err
	}
	cfg.content = data
	if lenient != nil {
		problem := strings.Join(strings.Fields(lenient.Error()), " ")
		cfg.Warnings = append([]string{"fields that are not known are ignored, of those that come twice the last one counts: " + problem}, cfg.Warnings...)
	}
	return cfg, nil
}

// decode decodes the content of a file. It returns in lenient what is wrong with it
// beside: fields that are not known are skipped, of those that come twice the last
// one counts.
func decode(data []byte) (object *v1alpha1.KubeProxyConfiguration, lenient, err error) {
	decoded, err := decodeInto(data, serializer.EnableStrict)
	if runtime.IsStrictDecodingError(err) {
		lenient = err
		decoded, err = decodeInto(data, serializer.DisableStrict)
	}
	if err != nil {
		return nil, nil, err
	}
	object, ok := decoded.(*v1alpha1.KubeProxyConfiguration)
	if !ok {
		return nil, nil, wrongKind(data)
	}
	return object, lenient, nil
}

func decodeInto(data []byte, strictness serializer.CodecFactoryOptionsMutator) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the types of kube-proxy's configuration: %w", err)
	}
	object, _, err := serializer.NewCodecFactory(scheme, strictness).UniversalDeserializer().Decode(data, nil, nil)
	switch {
	case err == nil || runtime.IsStrictDecodingError(err):
		return object, err
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err), runtime.IsNotRegisteredError(err):
		return nil, wrongKind(data)
	default:
		return nil, fmt.Errorf("it cannot be read as YAML or JSON of kind %s: %w", kind, err)
	}
}

func wrongKind(data []byte) error {
	var is metav1.TypeMeta
	if err := yaml.Unmarshal(data, &is); err != nil {
		return fmt.Errorf("it cannot be read as YAML or JSON: %w", err)
	}
	return fmt.Errorf("it has apiVersion %q and kind %q, but must have apiVersion %q and kind %q",
		is.APIVersion, is.Kind, v1alpha1.SchemeGroupVersion, kind)
}

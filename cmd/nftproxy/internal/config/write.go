package config

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// WriteFile writes the configuration with its defaults to a file, as YAML that Load
// and kube-proxy read.
func (c *Config) WriteFile(path string) error {
	data, err := yaml.Marshal(c.Object)
	if err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write the configuration: %w: give a path that this process may write", err)
	}
	return nil
}

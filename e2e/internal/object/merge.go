package object

import "maps"

// Merge returns a JSON value changed by a merge patch (RFC 7386): objects are
// merged field by field, null removes a field, everything else replaces. Neither
// argument is changed; the result may share parts with both.
func Merge(value, patch map[string]any) map[string]any {
	merged := make(map[string]any, len(value)+len(patch))
	maps.Copy(merged, value)
	for name, field := range patch {
		switch field := field.(type) {
		case nil:
			delete(merged, name)
		case map[string]any:
			old, _ := merged[name].(map[string]any)
			merged[name] = Merge(old, field)
		default:
			merged[name] = field
		}
	}
	return merged
}

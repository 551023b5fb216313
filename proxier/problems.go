package proxier

import (
	"errors"
	"fmt"
)

// annotationError is an error about one of the proxy's own annotations.
type annotationError struct {
	name string
	err  error
}

// Error implements error. It begins with the field, as the errors about others do.
func (e *annotationError) Error() string {
	return fmt.Sprintf("metadata.annotations[%s]: %v", e.name, e.err)
}

// Unwrap returns what is wrong with the text.
func (e *annotationError) Unwrap() error { return e.err }

// problemsOf returns a problem for each error about fields of one object that err
// joins. The text says where the object is.
func problemsOf(object ObjectRef, where string, err error) (problems []Problem) {
	for _, e := range each(err) {
		reason := ReasonUnusableField
		if _, ok := errors.AsType[*annotationError](e); ok {
			reason = ReasonBadAnnotation
		}
		problems = append(problems, Problem{Object: object, Reason: reason, Err: fmt.Errorf("%s: %w", where, e)})
	}
	return problems
}

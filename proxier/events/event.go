package events

import (
	"unicode/utf8"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record/util"
)

// ReportingController is the name under which the proxy reports.
const ReportingController = "nftproxy"

// Type is what kind of Event it is.
type Type string

// The types.
const (
	Normal  Type = "Normal"
	Warning Type = "Warning"
)

// Event is something to tell about an object.
type Event struct {
	// Regarding is the object. Its UID should be set: tools look for an object's
	// Events by it. Those of a Node carry the Node's name as UID by convention.
	Regarding corev1.ObjectReference
	Type      Type
	// Reason is why, Action is what was done or failed: a word in UpperCamelCase each,
	// at most 128 bytes.
	Reason, Action string
	// Note says it to a human. It is cut to 1024 bytes.
	Note string
}

// Limits of events.k8s.io/v1, in bytes.
const (
	maxNote     = 1024
	maxInstance = 128
)

// object returns the Event as the API server takes it. The namespace of an Event about
// an object without one is "default".
func (e Event) object(instance string, at metav1.MicroTime) *eventsv1.Event {
	namespace := e.Regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name:      util.GenerateEventName(e.Regarding.Name, at.UnixNano()),
			Namespace: namespace,
		},
		EventTime:           at,
		ReportingController: ReportingController,
		ReportingInstance:   clip(instance, maxInstance),
		Type:                string(e.Type),
		Reason:              e.Reason,
		Action:              e.Action,
		Regarding:           e.Regarding,
		Note:                clip(e.Note, maxNote),
	}
}

// clip cuts a text to a number of bytes without cutting a character.
func clip(s string, length int) string {
	if len(s) <= length {
		return s
	}
	for length > 0 && !utf8.RuneStart(s[length]) {
		length--
	}
	return s[:length]
}

// fields returns the Event for the log.
func (e Event) fields() []zap.Field {
	return []zap.Field{
		zap.String("kind", e.Regarding.Kind), zap.String("namespace", e.Regarding.Namespace), zap.String("name", e.Regarding.Name),
		zap.String("reason", e.Reason), zap.String("action", e.Action), zap.String("note", e.Note),
	}
}

package apiserver

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// encoding is how a client wants its answers.
type encoding struct {
	info    runtime.SerializerInfo
	encoder runtime.Encoder // into the version of the resource
}

// negotiate returns the first encoding that a client accepts, JSON if it accepts none.
func (s *Server) negotiate(accept string, r resource) encoding {
	types := s.codecs.SupportedMediaTypes()
	info, _ := runtime.SerializerInfoForMediaType(types, runtime.ContentTypeJSON)
	for text := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(text)
		if err != nil || params["as"] != "" { // tables are not served
			continue
		}
		if found, ok := runtime.SerializerInfoForMediaType(types, name); ok && found.StreamSerializer != nil {
			info = found
			break
		}
	}
	gv, _ := schema.ParseGroupVersion(r.gv) // of resources, so well-formed
	return encoding{info, s.codecs.EncoderForVersion(info.Serializer, gv)}
}

// write writes an answer.
func (e encoding) write(w http.ResponseWriter, o runtime.Object) error {
	w.Header().Set("Content-Type", e.info.MediaType)
	if err := e.encoder.Encode(o, w); err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

// streamType is the content type of a watch.
func (e encoding) streamType() string {
	if e.info.MediaType == runtime.ContentTypeProtobuf {
		return e.info.MediaType + ";stream=watch"
	}
	return e.info.MediaType
}

// stream writes the events of a watch.
type stream struct {
	encoding
	frames io.Writer
}

func (e encoding) stream(w io.Writer) *stream {
	return &stream{e, e.info.StreamSerializer.NewFrameWriter(w)}
}

// write writes an event.
func (s *stream) write(kind watch.EventType, o runtime.Object) error {
	raw, err := runtime.Encode(s.encoder, o)
	if err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	e := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}
	if err := s.info.StreamSerializer.Encode(e, s.frames); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	return nil
}

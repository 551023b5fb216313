package proxier

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifest is what one file says.
type manifest struct {
	// objects has an entry for each object of the file, those that are not for this
	// proxy included: they claim their name.
	objects map[objectKey]object
	// unusable are the objects of which nothing can be used: their last good state
	// stays.
	unusable map[objectKey]bool
	// unnamed is true if something in the file cannot be told to be one object or
	// another. It may be any object that the file had before, so that all of them
	// stay.
	unnamed bool
	// problems say what is not used, and where it is.
	problems []Problem
}

// parseManifest reads the objects that are for the node of that name out of a file. It
// returns an error if the file is not YAML or JSON; whatever is wrong with single
// objects is a problem of the manifest.
func parseManifest(data []byte, nodeName string) (*manifest, error) {
	docs, err := splitDocuments(data)
	if err != nil {
		return nil, err
	}
	p := manifestParser{
		manifest:  &manifest{objects: map[objectKey]object{}, unusable: map[objectKey]bool{}},
		nodeName:  nodeName,
		kinds:     manifestKinds(),
		itemKinds: map[schema.GroupVersionKind]schema.GroupVersionKind{},
	}
	p.itemKinds[corev1.SchemeGroupVersion.WithKind("List")] = schema.GroupVersionKind{}
	for _, kind := range p.kinds {
		p.itemKinds[kind.GroupVersion().WithKind(kind.Kind+"List")] = kind
	}
	for _, d := range docs {
		if !bytes.Equal(bytes.TrimSpace(d.json), []byte("null")) {
			p.addDocument(d.where, d.json)
		}
	}
	return p.manifest, nil
}

// manifestKinds returns the kinds that are read, each first in the version that is
// preferred.
func manifestKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind(kindService),
		discoveryv1.SchemeGroupVersion.WithKind(kindSlice),
		corev1.SchemeGroupVersion.WithKind(kindNode),
		networkingv1.SchemeGroupVersion.WithKind(kindServiceCIDR),
		networkingv1beta1.SchemeGroupVersion.WithKind(kindServiceCIDR), // the same fields
	}
}

// newKubeObject returns an object of Kubernetes to decode one of the kind into.
func newKubeObject(kind string) metav1.Object {
	switch kind {
	case kindService:
		return &corev1.Service{}
	case kindSlice:
		return &discoveryv1.EndpointSlice{}
	case kindNode:
		return &corev1.Node{}
	default:
		return &networkingv1.ServiceCIDR{}
	}
}

// document is one document of a file.
type document struct {
	where string // "document 2 (line 14)"
	json  []byte
}

// splitDocuments returns the documents of a YAML or JSON file as JSON.
func splitDocuments(data []byte) (docs []document, err error) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	line, rest := 1, data
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		where := fmt.Sprintf("document %d", len(docs)+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		// The reader returns lines as they are, so that they can be found again; all
		// but for a line end at the end of the file.
		if i := bytes.Index(rest, bytes.TrimSuffix(text, []byte("\n"))); i >= 0 {
			line += bytes.Count(rest[:i], []byte("\n"))
			where = fmt.Sprintf("%s (line %d)", where, line)
			end := min(i+len(text), len(rest))
			line += bytes.Count(rest[i:end], []byte("\n"))
			rest = rest[end:]
		}
		converted, err := toJSON(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		for _, c := range converted {
			docs = append(docs, document{where: where, json: c})
		}
	}
}

// toJSON converts a YAML document, or JSON documents one after the other. What
// begins as JSON but is none may still be YAML.
func toJSON(text []byte) ([][]byte, error) {
	var jsonErr error
	if utilyaml.IsJSONBuffer(text) {
		var docs [][]byte
		if docs, jsonErr = jsonDocuments(text); jsonErr == nil {
			return docs, nil
		}
	}
	doc, err := yaml.YAMLToJSONStrict(text)
	switch {
	case err == nil:
		return [][]byte{doc}, nil
	case jsonErr != nil:
		return nil, jsonErr
	default:
		return nil, err
	}
}

func jsonDocuments(text []byte) (docs [][]byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var doc json.RawMessage
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			before := bytes.TrimRight(text, "\n") // an end that comes too early is at the end
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				before = text[:min(syntax.Offset, int64(len(text)))]
			}
			return nil, fmt.Errorf("json: line %d: %w", 1+bytes.Count(before, []byte("\n")), err)
		}
		docs = append(docs, doc)
	}
}

// manifestParser adds to a manifest.
type manifestParser struct {
	*manifest

	nodeName string
	kinds    []schema.GroupVersionKind // see manifestKinds
	// itemKinds has the kinds of lists, with the kind of those items that do not say
	// it themselves.
	itemKinds map[schema.GroupVersionKind]schema.GroupVersionKind
}

// addDocument adds the object of one document, or the items if it is a list.
func (p *manifestParser) addDocument(where string, data []byte) {
	kind, err := kindOf(data, schema.GroupVersionKind{})
	if err != nil {
		p.refuse(where, err)
		return
	}
	itemKind, isList := p.itemKinds[kind]
	if !isList {
		p.add(where, data, kind)
		return
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &list); err != nil {
		p.refuse(where, err)
		return
	}
	for i, item := range list.Items {
		where := fmt.Sprintf("%s: items[%d]", where, i)
		kind, err := kindOf(item, itemKind)
		if err != nil {
			p.refuse(where, err)
			continue
		}
		p.add(where, item, kind)
	}
}

// kindOf returns the kind of an object, or the given one for an object that does
// not say it.
func kindOf(data []byte, unsaid schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	var typeMeta metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &typeMeta); err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("is not a Kubernetes object: %w", err)
	}
	if typeMeta == (metav1.TypeMeta{}) && !unsaid.Empty() {
		return unsaid, nil
	}
	if typeMeta.APIVersion == "" || typeMeta.Kind == "" {
		return schema.GroupVersionKind{}, errors.New("is not a Kubernetes object: apiVersion or kind is missing")
	}
	return schema.FromAPIVersionAndKind(typeMeta.APIVersion, typeMeta.Kind), nil
}

// add adds an object of a kind that is read. It refuses what is probably meant to be
// one, and ignores other kinds, and other Nodes.
func (p *manifestParser) add(where string, data []byte, kind schema.GroupVersionKind) {
	if slices.Contains(p.kinds, kind) {
		if kind.Kind != kindNode || p.isThisNode(data) {
			p.addObject(where, data, kind.Kind, newKubeObject(kind.Kind))
		}
		return
	}
	if _, isList := p.itemKinds[kind]; isList {
		p.refuse(where, errors.New("is a list inside of a list: put its items into the outer one"))
		return
	}
	for _, like := range p.kinds {
		if kind.Group == like.Group && strings.EqualFold(kind.Kind, like.Kind) {
			p.refuse(where, fmt.Errorf("is apiVersion %s, kind %s: only apiVersion %s, kind %s is known",
				kind.GroupVersion(), kind.Kind, like.GroupVersion(), like.Kind))
			return
		}
	}
}

// isThisNode reports whether a Node has the name of this node. Others are not even
// decoded.
func (p *manifestParser) isThisNode(data []byte) bool {
	name := nameOf(data).Name
	return name != "" && name == p.nodeName
}

// addObject decodes the data into the given object of Kubernetes, and converts
// that.
func (p *manifestParser) addObject(where string, data []byte, kind string, into metav1.Object) {
	strict, err := kjson.UnmarshalStrict(data, into, kjson.DisallowDuplicateFields)
	if err = errors.Join(append(strict, err)...); err != nil {
		if name := nameOf(data); name.Name != "" { // decoding may have ended before it
			into.SetName(name.Name)
			into.SetNamespace(name.Namespace)
		}
	}
	if into.GetName() == "" {
		if err == nil {
			err = errNoName
		}
		p.refuse(where, fmt.Errorf("%s: %w", kind, err))
		return
	}
	var o object
	setDefaults(into)
	key := objectKey{kind, namespacedName(into)}
	ref := key.ref(into.GetUID())
	where += ": " + key.String()
	if err == nil {
		_, o, err = convert(into, p.nodeName)
	}
	if _, listed := p.objects[key]; listed || p.unusable[key] {
		p.problems = append(p.problems, Problem{
			Object: ref, Reason: ReasonDuplicateObject,
			Err: fmt.Errorf("%s: is in this file before, and that is what is used: remove one of the two", where),
		})
		return
	}
	p.problems = append(p.problems, problemsOf(ref, where, err)...)
	if err != nil && !o.exists() {
		p.unusable[key] = true
		return
	}
	p.objects[key] = o
}

// nameOf returns the name of an object that perhaps cannot be decoded, empty if it
// cannot be told.
func nameOf(data []byte) (name types.NamespacedName) {
	var named struct {
		Metadata struct {
			Name, Namespace string
		} `json:"metadata"`
	}
	if json.Unmarshal(data, &named) != nil {
		return name
	}
	return types.NamespacedName{Namespace: named.Metadata.Namespace, Name: named.Metadata.Name}
}

// refuse notes something that could be any object.
func (m *manifest) refuse(where string, err error) {
	m.unnamed = true
	m.problems = append(m.problems, Problem{Reason: ReasonBadManifest, Err: fmt.Errorf("%s: %w", where, err)})
}

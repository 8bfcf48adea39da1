package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Manifests are the objects of a cluster that say where traffic can go, read from
// files. The objects are in the order in which they were first given.
type Manifests struct {
	Nodes    []*corev1.Node
	Pods     []*corev1.Pod
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	// Policies, and those of the cluster with the namespaces that they choose, say what
	// Services ask for.
	Policies        []*v1alpha1.RoutingPolicy
	ClusterPolicies []*v1alpha1.ClusterRoutingPolicy
	Namespaces      []*corev1.Namespace

	decoder  runtime.Decoder
	places   map[string]int // of objects in their list, by kind, namespace and name
	ignored  map[string]int // objects by kind
	replaced []string
}

// NewManifests returns an empty set.
func NewManifests() (*Manifests, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing to read manifests: %w", err)
		}
	}
	return &Manifests{
		decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(),
		places:  map[string]int{},
		ignored: map[string]int{},
	}, nil
}

// A ManifestError says where in which file something cannot be read.
type ManifestError struct {
	File string
	// Document counts the documents of the file that are not empty, from 1.
	Document int
	// Line is where in the file the mistake is or, if that is not known, where the
	// document starts.
	Line int
	// Object is the kind and name of the object, as far as they are known.
	Object string
	Err    error
}

func (e *ManifestError) Error() string {
	where := fmt.Sprintf("%s: document %d, line %d", e.File, e.Document, e.Line)
	if e.Object != "" {
		where += ": " + e.Object
	}
	return where + ": " + e.Err.Error()
}

func (e *ManifestError) Unwrap() error { return e.Err }

// Read adds the objects in YAML or JSON, of one or many documents. An object that
// was read before is replaced. Of lists, as kubectl prints them, the items are read.
// The error is a ManifestError unless reading itself fails.
func (m *Manifests) Read(file string, from io.Reader) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	number := 0
	for _, part := range splitDocuments(data) {
		documents, err := part.values()
		for _, document := range documents {
			number++
			if object, err := m.add(document.json, metav1.TypeMeta{}); err != nil {
				return &ManifestError{file, number, document.line, object, err}
			}
		}
		if err != nil {
			var failure *syntaxError
			if !errors.As(err, &failure) {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			return &ManifestError{file, number + 1, failure.line, "", failure.err}
		}
	}
	return nil
}

// text is a part of a file, and the line of the file that it starts on.
type text struct {
	data []byte
	line int
}

// document is one value, as JSON.
type document struct {
	json json.RawMessage
	line int
}

// syntaxError is text that is no value.
type syntaxError struct {
	line int
	err  error
}

func (e *syntaxError) Error() string { return e.err.Error() }

// splitDocuments cuts a file before each line that starts a YAML document, which may
// have content, and after each line that only ends one.
func splitDocuments(data []byte) []text {
	var parts []text
	current := text{line: 1}
	line := 0
	for piece := range bytes.Lines(data) {
		line++
		starts := bytes.HasPrefix(piece, []byte("---")) && len(bytes.TrimSpace(piece[3:min(4, len(piece))])) == 0
		ends := bytes.Equal(bytes.TrimRight(piece, " \t\r\n"), []byte("..."))
		switch {
		case starts:
			parts = append(parts, current)
			current = text{line: line, data: slices.Clone(piece)}
		case ends:
			parts = append(parts, current)
			current = text{line: line + 1}
		default:
			current.data = append(current.data, piece...)
		}
	}
	return append(parts, current)
}

// marker is the start of a YAML document, which may stand before JSON too.
var marker = regexp.MustCompile(`\A---[ \t]*\r?\n`)

// values reads what is in the text: one YAML document, or any number of JSON values
// in a row. Together with an error come the values before it.
func (t text) values() ([]document, error) {
	t.data = bytes.TrimPrefix(t.data, []byte("\xef\xbb\xbf")) // a byte order mark
	body := t
	if start := marker.Find(t.data); start != nil {
		body = text{t.data[len(start):], t.line + 1}
	}
	if !bytes.HasPrefix(bytes.TrimLeft(body.data, " \t\r\n"), []byte("{")) {
		return t.yaml()
	}
	documents, err := body.jsonStream()
	if err != nil && len(documents) == 0 {
		if flow, found := body.flowMap(); found {
			return []document{flow}, nil
		}
	}
	return documents, err
}

// flowMap reads a map that YAML allows in braces and JSON does not. The parser stops
// where a document ends, so the map is put into a list: that has one item only if
// nothing comes after the map.
func (t text) flowMap() (document, bool) {
	value, err := yaml.YAMLToJSONStrict(slices.Concat([]byte("[\n"), t.data, []byte("\n]")))
	if err != nil {
		return document{}, false
	}
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) != 1 {
		return document{}, false
	}
	return document{list[0], t.line}, true
}

func (t text) jsonStream() ([]document, error) {
	var documents []document
	decoder := json.NewDecoder(bytes.NewReader(t.data))
	for {
		start := int(decoder.InputOffset())
		start += len(t.data[start:]) - len(bytes.TrimLeft(t.data[start:], " \t\r\n"))
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return documents, nil
		}
		if err != nil {
			at := len(t.data) // the end came too early
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF) {
				at = min(int(syntax.Offset), at)
			}
			return documents, &syntaxError{t.lineAt(at), err}
		}
		documents = append(documents, document{value, t.lineAt(start)})
	}
}

// lineAt is the line of the file at an offset.
func (t text) lineAt(offset int) int {
	return t.line + bytes.Count(t.data[:offset], []byte("\n"))
}

// yamlLine is how the YAML parser says where an error is.
var yamlLine = regexp.MustCompile(`\bline (\d+): `)

func (t text) yaml() ([]document, error) {
	value, err := yaml.YAMLToJSONStrict(t.data)
	if err != nil {
		message := strings.TrimPrefix(strings.TrimPrefix(oneLine(err.Error()), "error converting YAML to JSON: "), "yaml: ")
		line := t.line
		if found := yamlLine.FindStringSubmatchIndex(message); found != nil {
			if relative, err := strconv.Atoi(message[found[2]:found[3]]); err == nil && relative > 0 {
				// The parser counts some characters as line ends that editors do not.
				line = min(line+relative-1, t.lineAt(len(t.data)))
			}
			message = message[:found[0]] + message[found[1]:]
		}
		return nil, &syntaxError{line, errors.New(message)}
	}
	if string(value) == "null" {
		return nil, nil // only comments, or nothing
	}
	first := bytes.TrimPrefix(t.data, []byte("---"))
	skipped := len(t.data) - len(bytes.TrimLeft(first, " \t\r\n"))
	return []document{{value, t.lineAt(skipped)}}, nil
}

// oneLine joins the lines of a message.
func oneLine(message string) string {
	return strings.Join(strings.Fields(message), " ")
}

// identity is what every object has.
type identity struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// String is for messages.
func (i identity) String() string {
	name := i.Metadata.Name
	if i.Metadata.Namespace != "" {
		name = i.Metadata.Namespace + "/" + name
	}
	return strings.TrimSpace(i.Kind + " " + name)
}

// add reads one object. Items of a list that do not say what they are have the type
// that the list implies. With an error comes the object it is about.
func (m *Manifests) add(raw json.RawMessage, implied metav1.TypeMeta) (object string, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return "", errors.New("not a Kubernetes object: it must be a map with apiVersion, kind and metadata")
	}
	var id identity
	// What does not fit here does not fit the type below either, which says so in
	// full; and of kinds that are ignored it does not matter.
	idErr := json.Unmarshal(raw, &id)
	if id.Kind == "" && id.APIVersion == "" {
		id.TypeMeta = implied
	}
	switch {
	case id.Kind == "" && idErr != nil:
		return "", errors.New("not a Kubernetes object: apiVersion, kind and metadata.name must be strings")
	case id.Kind == "":
		return id.String(), errors.New("kind is missing; each document must be a Kubernetes object")
	case id.APIVersion == "":
		return id.String(), errors.New("apiVersion is missing; each document must be a Kubernetes object")
	}
	if items, found, err := itemsOf(id, raw); err != nil || found {
		if err != nil {
			return id.String(), err
		}
		return m.addItems(id, items)
	}
	gvk := id.GroupVersionKind()
	if !read(gvk) {
		m.ignored[ignoredName(gvk)]++
		return "", nil
	}
	decoded, _, err := m.decoder.Decode(raw, &gvk, nil)
	if err != nil {
		return id.String(), err
	}
	if id.Metadata.Name == "" {
		return id.String(), errors.New("metadata.name is missing")
	}
	m.keep(decoded)
	return "", nil
}

// itemsOf finds the items if the object is a list.
func itemsOf(id identity, raw json.RawMessage) (items []json.RawMessage, found bool, err error) {
	if !strings.HasSuffix(id.Kind, "List") {
		return nil, false, nil
	}
	var list struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Items) == 0 {
		return nil, id.Kind == "List", err
	}
	// An empty list may be null.
	if err := json.Unmarshal(list.Items, &items); err != nil {
		return nil, true, errors.New("items must be a list of objects")
	}
	return items, true, nil
}

func (m *Manifests) addItems(list identity, items []json.RawMessage) (object string, err error) {
	var implied metav1.TypeMeta
	if kind := strings.TrimSuffix(list.Kind, "List"); kind != "" {
		implied = metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}
	}
	for i, item := range items {
		if object, err := m.add(item, implied); err != nil {
			where := fmt.Sprintf("item %d of %s", i+1, list.Kind)
			if object != "" {
				where += ": " + object
			}
			return where, err
		}
	}
	return "", nil
}

// read reports whether objects of the kind matter.
func read(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "Node", "Pod", "Service", "Namespace":
		return gvk.Group == "" && gvk.Version == "v1"
	case kindPolicy, kindClusterPolicy:
		return gvk.GroupVersion() == v1alpha1.GroupVersion
	case "EndpointSlice":
		return gvk.Group == discoveryv1.GroupName && gvk.Version == "v1"
	}
	return false
}

// ignoredName is the kind, with its group and version where the kind alone would
// look like one that is read.
func ignoredName(gvk schema.GroupVersionKind) string {
	if slices.Contains([]string{"Node", "Pod", "Service", "Namespace", "EndpointSlice", kindPolicy, kindClusterPolicy}, gvk.Kind) {
		return fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion())
	}
	return gvk.Kind
}

// keep adds an object to its list, in the place of the one with the same name.
func (m *Manifests) keep(decoded runtime.Object) {
	switch object := decoded.(type) {
	case *corev1.Node:
		m.Nodes = put(m, m.Nodes, "Node "+object.Name, object)
	case *corev1.Pod:
		object.Namespace = namespaceOf(object)
		m.Pods = put(m, m.Pods, "Pod "+object.Namespace+"/"+object.Name, object)
	case *corev1.Service:
		object.Namespace = namespaceOf(object)
		m.Services = put(m, m.Services, "Service "+object.Namespace+"/"+object.Name, object)
	case *corev1.Namespace:
		m.Namespaces = put(m, m.Namespaces, "Namespace "+object.Name, object)
	case *v1alpha1.RoutingPolicy:
		object.Namespace = namespaceOf(object)
		m.Policies = put(m, m.Policies, kindPolicy+" "+object.Namespace+"/"+object.Name, object)
	case *v1alpha1.ClusterRoutingPolicy:
		m.ClusterPolicies = put(m, m.ClusterPolicies, kindClusterPolicy+" "+object.Name, object)
	case *discoveryv1.EndpointSlice:
		object.Namespace = namespaceOf(object)
		m.Slices = put(m, m.Slices, "EndpointSlice "+object.Namespace+"/"+object.Name, object)
	}
}

func put[T any](m *Manifests, list []T, name string, object T) []T {
	if at, found := m.places[name]; found {
		m.replaced = append(m.replaced, name)
		list[at] = object
		return list
	}
	m.places[name] = len(list)
	return append(list, object)
}

// namespaceOf is the namespace in which kubectl would make the object.
func namespaceOf(object metav1.Object) string {
	return cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)
}

// Notes say what was read and does not count, each in a sentence.
func (m *Manifests) Notes() []string {
	var kinds, notes []string
	for kind, n := range m.ignored {
		kinds = append(kinds, fmt.Sprintf("%s (%d)", kind, n))
	}
	slices.Sort(kinds)
	if len(kinds) > 0 {
		notes = append(notes, "ignored: "+strings.Join(kinds, ", "))
	}
	for kind := range m.ignored {
		if slices.Contains([]string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}, kind) {
			notes = append(notes, "only pods that exist are counted, not what a workload asks for")
			break
		}
	}
	if n := len(m.replaced); n > 0 {
		notes = append(notes, fmt.Sprintf("%s given more than once, of which the last counts: %s", count(n, "object"), some(m.replaced)))
	}
	return notes
}

// Defaults are the ClusterRoutingPolicies that choose the namespace. One that is not given
// has the label that Kubernetes gives to each, and no other.
func (m *Manifests) Defaults(namespace string) []*v1alpha1.ClusterRoutingPolicy {
	labels := map[string]string{corev1.LabelMetadataName: namespace}
	for _, given := range m.Namespaces {
		if given.Name == namespace {
			maps.Copy(labels, given.Labels)
		}
	}
	return ForNamespace(m.ClusterPolicies, labels)
}

// Endpoints are the ready endpoints of one of the Services: those in its slices or,
// if it has none, those of the pods that it selects.
func (m *Manifests) Endpoints(service *corev1.Service, cluster *Cluster) Families {
	var eps []*discoveryv1.EndpointSlice
	for _, slice := range m.Slices {
		if slice.Namespace == service.Namespace && slice.Labels[discoveryv1.LabelServiceName] == service.Name {
			eps = append(eps, slice)
		}
	}
	if len(eps) > 0 {
		return SliceEndpoints(eps, cluster)
	}
	return PodEndpoints(service, m.Pods, cluster)
}

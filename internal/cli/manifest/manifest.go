// Package manifest reads Kubernetes objects from files in YAML or JSON, and says where a mistake is.
package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Objects holds the objects of some kinds, in the order in which they were first given.
type Objects struct {
	scheme   *runtime.Scheme // of the kinds that are read
	decoder  runtime.Decoder
	list     []runtime.Object
	places   map[string]int // index in the list, by kind, namespace and name
	ignored  map[string]int // count by kind
	replaced []string
}

// NewObjects returns an empty Objects for some kinds.
func NewObjects(kinds map[schema.GroupVersion][]runtime.Object) *Objects {
	scheme := runtime.NewScheme()
	for version, types := range kinds {
		scheme.AddKnownTypes(version, types...)
	}
	return &Objects{scheme: scheme, decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(), places: map[string]int{}, ignored: map[string]int{}}
}

// List returns the objects of one kind.
func List[T any](m *Objects) []*T {
	var list []*T
	for _, object := range m.list {
		if of, is := any(object).(*T); is {
			list = append(list, of)
		}
	}
	return list
}

// Read adds objects in YAML or JSON, documents or lists. It replaces an object that was read before.
// The error is an Error unless reading itself fails.
func (m *Objects) Read(file string, from io.Reader) error {
	return Walk(file, from, m.add)
}

func (m *Objects) add(o Object) error {
	if !m.scheme.Recognizes(o.Kind) {
		m.ignored[m.ignoredName(o.Kind)]++
		return nil
	}
	decoded, _, err := m.decoder.Decode(o.JSON, &o.Kind, nil)
	if err != nil {
		return err
	}
	if o.name == "" {
		return errors.New("metadata.name is missing")
	}
	return m.keep(o.Kind.Kind, decoded)
}

// ignoredName adds group and version where the kind alone would look like one that is read.
func (m *Objects) ignoredName(gvk schema.GroupVersionKind) string {
	for known := range m.scheme.AllKnownTypes() {
		if known.Kind == gvk.Kind {
			return fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion())
		}
	}
	return gvk.Kind
}

// clusterWide are the kinds without a namespace.
var clusterWide = []string{"ClusterRoutingPolicy", "MutatingWebhookConfiguration", "Namespace", "Node", "PersistentVolume", "ValidatingWebhookConfiguration"}

// keep adds or replaces an object. Without a namespace it is in the default one, as for kubectl.
func (m *Objects) keep(kind string, decoded runtime.Object) error {
	object, err := meta.Accessor(decoded)
	if err != nil {
		return err
	}
	name := kind + " " + object.GetName()
	if !slices.Contains(clusterWide, kind) {
		object.SetNamespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault))
		name = kind + " " + object.GetNamespace() + "/" + object.GetName()
	}
	if at, found := m.places[name]; found {
		m.replaced = append(m.replaced, name)
		m.list[at] = decoded
		return nil
	}
	m.places[name] = len(m.list)
	m.list = append(m.list, decoded)
	return nil
}

// Notes has a sentence for each thing that was read and does not count.
func (m *Objects) Notes() []string {
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
		notes = append(notes, fmt.Sprintf("%s given more than once (the last counts): %s",
			plaintext.Count(int64(n), "object", "objects"), plaintext.FirstOf(m.replaced, 5)))
	}
	return notes
}

// Set has the objects that decide where traffic can go.
type Set struct {
	*Objects
	Nodes           []*corev1.Node
	Pods            []*corev1.Pod
	Services        []*corev1.Service
	Slices          []*discoveryv1.EndpointSlice
	Policies        []*v1alpha1.RoutingPolicy
	ClusterPolicies []*v1alpha1.ClusterRoutingPolicy
	Namespaces      []*corev1.Namespace
}

// NewSet returns an empty set.
func NewSet() *Set {
	return &Set{Objects: NewObjects(map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion:      {&corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}, &corev1.Service{}},
		discoveryv1.SchemeGroupVersion: {&discoveryv1.EndpointSlice{}},
		v1alpha1.GroupVersion:          {&v1alpha1.ClusterRoutingPolicy{}, &v1alpha1.RoutingPolicy{}},
	})}
}

// Read is Read of Objects.
func (m *Set) Read(file string, from io.Reader) error {
	err := m.Objects.Read(file, from)
	m.Nodes, m.Pods, m.Services, m.Slices = List[corev1.Node](m.Objects), List[corev1.Pod](m.Objects), List[corev1.Service](m.Objects), List[discoveryv1.EndpointSlice](m.Objects)
	m.Policies, m.ClusterPolicies, m.Namespaces = List[v1alpha1.RoutingPolicy](m.Objects), List[v1alpha1.ClusterRoutingPolicy](m.Objects), List[corev1.Namespace](m.Objects)
	return err
}

// Defaults returns the ClusterRoutingPolicies of a namespace. A Namespace that is not given has only
// the label that Kubernetes sets.
func (m *Set) Defaults(namespace string) []*v1alpha1.ClusterRoutingPolicy {
	labels := map[string]string{corev1.LabelMetadataName: namespace}
	for _, given := range m.Namespaces {
		if given.Name == namespace {
			maps.Copy(labels, given.Labels)
		}
	}
	return intent.ForNamespace(m.ClusterPolicies, labels)
}

// Endpoints returns the ready endpoints of a Service: those in its slices or, without slices, the pods
// that it selects.
func (m *Set) Endpoints(service *corev1.Service, cluster *intent.Cluster) intent.Families {
	if eps := m.slicesOf(service); len(eps) > 0 {
		return intent.SliceEndpoints(eps, cluster)
	}
	return intent.PodEndpoints(service, m.Pods, cluster)
}

// GivesNames reports whether pods have names below the Service's, by its slices or, without slices, by
// the pods.
func (m *Set) GivesNames(service *corev1.Service) bool {
	if eps := m.slicesOf(service); len(eps) > 0 {
		return intent.GivesNames(eps)
	}
	return slices.ContainsFunc(m.Pods, func(pod *corev1.Pod) bool {
		return pod.Namespace == service.Namespace && pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name
	})
}

func (m *Set) slicesOf(service *corev1.Service) []*discoveryv1.EndpointSlice {
	var eps []*discoveryv1.EndpointSlice
	for _, slice := range m.Slices {
		if slice.Namespace == service.Namespace && slice.Labels[discoveryv1.LabelServiceName] == service.Name {
			eps = append(eps, slice)
		}
	}
	return eps
}

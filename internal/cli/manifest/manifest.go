// Package manifest reads Kubernetes objects from files in YAML or JSON, and says where a mistake is. A
// Set has the objects that decide where traffic can go.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Set holds objects in the order in which they were first given.
type Set struct {
	Nodes           []*corev1.Node
	Pods            []*corev1.Pod
	Services        []*corev1.Service
	Slices          []*discoveryv1.EndpointSlice
	Policies        []*v1alpha1.RoutingPolicy
	ClusterPolicies []*v1alpha1.ClusterRoutingPolicy
	Namespaces      []*corev1.Namespace

	scheme   *runtime.Scheme // of the kinds that are read
	decoder  runtime.Decoder
	places   map[string]int // index in the list, by kind, namespace and name
	ignored  map[string]int // count by kind
	replaced []string
}

// NewSet returns an empty set.
func NewSet() *Set {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Node{}, &corev1.Pod{}, &corev1.Service{})
	scheme.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{})
	scheme.AddKnownTypes(v1alpha1.GroupVersion, &v1alpha1.ClusterRoutingPolicy{}, &v1alpha1.RoutingPolicy{})
	return &Set{
		scheme: scheme, decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(), places: map[string]int{}, ignored: map[string]int{},
	}
}

// Read adds objects in YAML or JSON, documents or lists. It replaces an object that was read before.
// The error is an Error unless reading itself fails.
func (m *Set) Read(file string, from io.Reader) error {
	return Walk(file, from, m.add)
}

func (m *Set) add(o Object) error {
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
	m.keep(decoded)
	return nil
}

// ignoredName adds group and version where the kind alone would look like one that is read.
func (m *Set) ignoredName(gvk schema.GroupVersionKind) string {
	for known := range m.scheme.AllKnownTypes() {
		if known.Kind == gvk.Kind {
			return fmt.Sprintf("%s of %s", gvk.Kind, gvk.GroupVersion())
		}
	}
	return gvk.Kind
}

// keep adds or replaces an object. Without a namespace it is in the default one, as for kubectl.
func (m *Set) keep(decoded runtime.Object) {
	switch object := decoded.(type) {
	case *corev1.Node:
		m.Nodes = put(m, m.Nodes, "Node "+object.Name, object)
	case *corev1.Namespace:
		m.Namespaces = put(m, m.Namespaces, "Namespace "+object.Name, object)
	case *v1alpha1.ClusterRoutingPolicy:
		m.ClusterPolicies = put(m, m.ClusterPolicies, "ClusterRoutingPolicy "+object.Name, object)
	case *corev1.Pod:
		m.Pods = putNamespaced(m, m.Pods, "Pod", object)
	case *corev1.Service:
		m.Services = putNamespaced(m, m.Services, "Service", object)
	case *v1alpha1.RoutingPolicy:
		m.Policies = putNamespaced(m, m.Policies, "RoutingPolicy", object)
	case *discoveryv1.EndpointSlice:
		m.Slices = putNamespaced(m, m.Slices, "EndpointSlice", object)
	}
}

func putNamespaced[T metav1.Object](m *Set, list []T, kind string, object T) []T {
	object.SetNamespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault))
	return put(m, list, kind+" "+object.GetNamespace()+"/"+object.GetName(), object)
}

func put[T any](m *Set, list []T, name string, object T) []T {
	if at, found := m.places[name]; found {
		m.replaced = append(m.replaced, name)
		list[at] = object
		return list
	}
	m.places[name] = len(list)
	return append(list, object)
}

// Notes has a sentence for each thing that was read and does not count.
func (m *Set) Notes() []string {
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

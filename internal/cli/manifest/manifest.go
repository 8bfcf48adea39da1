// Package manifest reads the objects of a cluster from files in YAML or JSON, and says where in
// which file a mistake is. A Set has those that say where traffic can go.
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
	"vicinity.dev/vicinity/internal/translate"
)

// Set is what was read. Objects are in the order in which they were first given.
type Set struct {
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

// NewSet returns an empty set.
func NewSet() (*Set, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing to read manifests: %w", err)
		}
	}
	return &Set{
		decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(),
		places:  map[string]int{},
		ignored: map[string]int{},
	}, nil
}

// Read adds the objects in YAML or JSON, of one or many documents. An object that
// was read before is replaced. Of lists, as kubectl prints them, the items are read.
// The error is an Error unless reading itself fails.
func (m *Set) Read(file string, from io.Reader) error {
	return Walk(file, from, m.add)
}

// The kinds of policies.
const (
	kindPolicy        = "RoutingPolicy"
	kindClusterPolicy = "ClusterRoutingPolicy"
)

// add keeps an object of a kind that matters.
func (m *Set) add(o Object) error {
	if !read(o.Kind) {
		m.ignored[ignoredName(o.Kind)]++
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
func (m *Set) keep(decoded runtime.Object) {
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

func put[T any](m *Set, list []T, name string, object T) []T {
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
		notes = append(notes, fmt.Sprintf("%s given more than once, of which the last counts: %s", count(n), plaintext.FirstOf(m.replaced, 5)))
	}
	return notes
}

func count(objects int) string {
	if objects == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", objects)
}

// Defaults are the ClusterRoutingPolicies that choose the namespace. One that is not given
// has the label that Kubernetes gives to each, and no other.
func (m *Set) Defaults(namespace string) []*v1alpha1.ClusterRoutingPolicy {
	labels := map[string]string{corev1.LabelMetadataName: namespace}
	for _, given := range m.Namespaces {
		if given.Name == namespace {
			maps.Copy(labels, given.Labels)
		}
	}
	return translate.ForNamespace(m.ClusterPolicies, labels)
}

// Endpoints are the ready endpoints of one of the Services: those in its slices or,
// if it has none, those of the pods that it selects.
func (m *Set) Endpoints(service *corev1.Service, cluster *translate.Cluster) translate.Families {
	if eps := m.slicesOf(service); len(eps) > 0 {
		return translate.SliceEndpoints(eps, cluster)
	}
	return translate.PodEndpoints(service, m.Pods, cluster)
}

// GivesNames reports whether pods have names under that of a Service: its slices say so or,
// if it has none, the pods.
func (m *Set) GivesNames(service *corev1.Service) bool {
	if eps := m.slicesOf(service); len(eps) > 0 {
		return translate.GivesNames(eps)
	}
	return slices.ContainsFunc(m.Pods, func(pod *corev1.Pod) bool {
		return pod.Namespace == service.Namespace && pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name
	})
}

// slicesOf are those of a Service.
func (m *Set) slicesOf(service *corev1.Service) []*discoveryv1.EndpointSlice {
	var eps []*discoveryv1.EndpointSlice
	for _, slice := range m.Slices {
		if slice.Namespace == service.Namespace && slice.Labels[discoveryv1.LabelServiceName] == service.Name {
			eps = append(eps, slice)
		}
	}
	return eps
}

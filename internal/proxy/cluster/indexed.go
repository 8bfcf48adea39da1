package cluster

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// indexed has objects by name and by Service.
type indexed[T metav1.Object] struct {
	owner func(T) types.NamespacedName // the Service, with an empty name without one

	all   map[types.NamespacedName]T
	owned map[types.NamespacedName][]T
}

func newIndexed[T metav1.Object](owner func(T) types.NamespacedName) *indexed[T] {
	return &indexed[T]{owner: owner, all: map[types.NamespacedName]T{}, owned: map[types.NamespacedName][]T{}}
}

// KeyOf returns the namespace and name of an object.
func KeyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// CompareNames orders names.
func CompareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// of returns the objects of a Service. The returned list never changes.
func (x *indexed[T]) of(service types.NamespacedName) []T { return x.owned[service] }

func (x *indexed[T]) set(object T) (before T, found bool) {
	before, found = x.remove(KeyOf(object))
	x.all[KeyOf(object)] = object
	if service := x.owner(object); service.Name != "" {
		x.owned[service] = append(slices.Clip(x.owned[service]), object)
	}
	return before, found
}

func (x *indexed[T]) remove(key types.NamespacedName) (before T, found bool) {
	before, found = x.all[key]
	if !found {
		return before, false
	}
	delete(x.all, key)
	service := x.owner(before)
	rest := make([]T, 0, len(x.owned[service]))
	for _, other := range x.owned[service] {
		if KeyOf(other) != key {
			rest = append(rest, other)
		}
	}
	if len(rest) > 0 {
		x.owned[service] = rest
	} else {
		delete(x.owned, service)
	}
	return before, true
}

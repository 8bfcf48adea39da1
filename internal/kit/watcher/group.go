package watcher

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// groupCodecs decode EndpointGroups without their managed fields and owners, which no node needs. The client library would also
// read each object once more, to find its kind.
type groupCodecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes returns those of the client library, with another decoder of JSON.
func (c groupCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		if infos[i].MediaType == runtime.ContentTypeJSON {
			infos[i].Serializer = groupDecoder{infos[i].Serializer}
		}
	}
	return infos
}

type groupDecoder struct{ runtime.Serializer }

// API servers write the fields of custom resources and their lists in alphabetical order, without spaces.
const (
	groupStart = `{"apiVersion":"vicinity.dev/v1alpha1","kind":"EndpointGroup",`
	listStart  = `{"apiVersion":"vicinity.dev/v1alpha1","items":[` + groupStart
)

// Decode decodes groups and lists of groups itself. It leaves all else to the client library, and all that it cannot decode.
func (d groupDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	kind := v1alpha1.GroupVersion.WithKind("EndpointGroup")
	switch {
	case into != nil:
	case bytes.HasPrefix(data, []byte(groupStart)):
		var one sentGroup
		if json.Unmarshal(data, &one) == nil {
			group := one.group()
			return &group, &kind, nil
		}
	case bytes.HasPrefix(data, []byte(listStart)):
		var all sentGroups
		if json.Unmarshal(data, &all) == nil {
			kind.Kind += "List"
			return all.list(), &kind, nil
		}
	}
	return d.Serializer.Decode(data, defaults, into)
}

// sentGroup is the part of a group that nodes need.
type sentGroup struct {
	Metadata struct {
		metav1.ObjectMeta
		ManagedFields   ignored `json:"managedFields"`
		OwnerReferences ignored `json:"ownerReferences"`
	} `json:"metadata"`
	Spec v1alpha1.EndpointGroupSpec `json:"spec"`
}

func (g *sentGroup) group() v1alpha1.EndpointGroup {
	return v1alpha1.EndpointGroup{ObjectMeta: g.Metadata.ObjectMeta, Spec: g.Spec}
}

type sentGroups struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []sentGroup     `json:"items"`
}

func (l *sentGroups) list() *v1alpha1.EndpointGroupList {
	list := &v1alpha1.EndpointGroupList{ListMeta: l.Metadata, Items: make([]v1alpha1.EndpointGroup, len(l.Items))}
	for i := range l.Items {
		list.Items[i] = l.Items[i].group()
	}
	return list
}

// ignored accepts any JSON.
type ignored struct{}

// UnmarshalJSON keeps nothing.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

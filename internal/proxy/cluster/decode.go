package cluster

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// groupCodecs read what API servers send of EndpointGroups. The codecs of the client
// library, which are for objects of any kind, read every message four times before they
// decode its object, most of that to find out what it is. These expect groups, written as
// API servers write them, and leave what looks different to the library.
type groupCodecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes are those of the library, with other readers of JSON.
func (c groupCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range infos {
		info := &infos[i]
		if info.MediaType != runtime.ContentTypeJSON || info.StreamSerializer == nil {
			continue
		}
		stream := *info.StreamSerializer
		stream.Serializer = messageReader{stream.Serializer}
		info.Serializer, info.StreamSerializer = groupReader{info.Serializer}, &stream
	}
	return infos
}

// messageReader reads the messages of a watch.
type messageReader struct{ runtime.Serializer }

// Decode takes the message apart. Its object stays what was received, which holds until the
// next message is read: the client library has it decoded before that.
func (r messageReader) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if event, ok := into.(*metav1.WatchEvent); ok {
		if kind, object, ok := splitMessage(data); ok {
			event.Type, event.Object.Raw = kind, object
			return event, defaults, nil
		}
	}
	return r.Serializer.Decode(data, defaults, into)
}

// splitMessage finds the two parts of a message. That they are well-formed, and that the
// second is one object only, is for those to say who read them.
func splitMessage(data []byte) (kind string, object []byte, ok bool) {
	rest, begins := bytes.CutPrefix(bytes.TrimSpace(data), []byte(`{"type":"`))
	word, rest, goesOn := bytes.Cut(rest, []byte(`","object":`))
	object, ends := bytes.CutSuffix(rest, []byte("}"))
	return string(word), object, begins && goesOn && ends && !bytes.ContainsAny(word, `"\`)
}

// groupReader reads groups.
type groupReader struct{ runtime.Serializer }

// Decode reads without what nodes do not need of groups, such as who has written what.
func (r groupReader) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		if group := readGroup(data); group != nil {
			is := v1alpha1.GroupVersion.WithKind(kindGroup)
			return group, &is, nil
		}
	}
	return r.Serializer.Decode(data, defaults, into)
}

const kindGroup = "EndpointGroup"

// groupBegins is what a group begins with. API servers write the fields of such objects in
// alphabetical order, without spaces.
var groupBegins = []byte(`{"apiVersion":"` + v1alpha1.GroupVersion.String() + `","kind":"` + kindGroup + `",`)

// readGroup reads a group. It returns nil for all else, and for what it cannot read, which
// the library will say what is wrong with.
func readGroup(data []byte) *v1alpha1.EndpointGroup {
	if !bytes.HasPrefix(data, groupBegins) {
		return nil
	}
	var read sentGroup
	if json.Unmarshal(data, &read) != nil {
		return nil
	}
	group := read.group()
	return &group
}

// sentGroup is a group as it is read.
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

// ignored is what is not looked at.
type ignored struct{}

// UnmarshalJSON takes anything.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

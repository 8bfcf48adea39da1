package watcher

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// decoders returns the decoder of the client library, and that of this package.
func decoders(t *testing.T) (library, own runtime.Decoder) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	decoder := func(codecs runtime.NegotiatedSerializer) runtime.Decoder {
		info, found := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
		if !found {
			t.Fatal("no decoder of JSON")
		}
		return codecs.DecoderToVersion(info.Serializer, v1alpha1.GroupVersion)
	}
	return decoder(codecs), decoder(groupCodecs{codecs})
}

// aGroup has ten endpoints, an owner and managed fields.
func aGroup(name string) v1alpha1.EndpointGroup {
	group := v1alpha1.EndpointGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroup"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"kubernetes.io/service-name": "web"}, ResourceVersion: "7",
			OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "web", UID: "u"}},
		},
	}
	for i := range 10 {
		group.Spec.Endpoints = append(group.Spec.Endpoints, v1alpha1.GroupEndpoint{Address: fmt.Sprintf("10.1.0.%d", i), Node: "n1", Zone: "a"})
	}
	group.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "vicinity-controller", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}},"f:spec":{}}`)}}
	return group
}

func encoded(t *testing.T, object any) []byte {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	// API servers write the fields in alphabetical order.
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return data
}

func groups(n int) *v1alpha1.EndpointGroupList {
	list := &v1alpha1.EndpointGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EndpointGroupList"}, ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "next"},
	}
	for i := range n {
		list.Items = append(list.Items, aGroup(fmt.Sprint("web-", i)))
	}
	return list
}

// Groups are as the client library decodes them, without owners and managed fields. All else is the client library's.
func TestGroupsAreDecoded(t *testing.T) {
	library, own := decoders(t)
	unread := func(group *v1alpha1.EndpointGroup) {
		group.TypeMeta, group.OwnerReferences, group.ManagedFields = metav1.TypeMeta{}, nil, nil
	}
	group := aGroup("web")
	for name, data := range map[string][]byte{
		"a group": encoded(t, group), "a list": encoded(t, groups(3)), "an empty list": encoded(t, groups(0)),
		"a locator": []byte(`{"apiVersion":"vicinity.dev/v1alpha1","kind":"PodLocator","metadata":{"name":"a"}}`),
		"an error":  []byte(`{"apiVersion":"v1","kind":"Status","status":"Failure"}`),
		"half":      encoded(t, group)[:200], "a wrong type": []byte(groupStart + `"spec":7}`), "a wrong list": []byte(listStart + `"spec":7}]}`), "a wrong kind": []byte(`{"apiVersion":"vicinity.dev/v1alpha1","kind":"EndpointGroups"}`), "nothing": nil,
	} {
		want, wantKind, wantErr := library.Decode(data, nil, nil)
		got, gotKind, err := own.Decode(data, nil, nil)
		switch object := want.(type) {
		case *v1alpha1.EndpointGroup:
			unread(object)
		case *v1alpha1.EndpointGroupList:
			for i := range object.Items {
				unread(&object.Items[i])
			}
		}
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("%s (-library +own):\n%s", name, difference)
		}
		if difference := cmp.Diff(wantKind, gotKind); difference != "" {
			t.Errorf("%s: kind (-library +own):\n%s", name, difference)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: error %v, want %v", name, err, wantErr)
		}
	}
}

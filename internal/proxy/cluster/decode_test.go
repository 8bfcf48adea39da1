package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// codecs are those of the client library, and ours.
func codecs(t testing.TB) (library, ours runtime.NegotiatedSerializer) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	library = serializer.NewCodecFactory(scheme).WithoutConversion()
	return library, groupCodecs{library}
}

// readers are what reads the objects and the messages of a watch.
func readers(t testing.TB, of runtime.NegotiatedSerializer) (objects runtime.Decoder, messages runtime.Decoder) {
	t.Helper()
	objects, messages, _, err := runtime.NewClientNegotiator(of, v1alpha1.GroupVersion).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return objects, messages
}

// sent is a group as API servers send it.
func sent(name string) *v1alpha1.EndpointGroup {
	group := notFor(aGroup("web", name, "10.1.1.1", "10.1.1.2"), "b", "c")
	group.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindGroup}
	group.CreationTimestamp = metav1.NewTime(start).Rfc3339Copy()
	group.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "controller", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{}}},"f:spec":{}}`),
	}}
	group.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "1"}}
	group.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z", "text": `a "quoted" one, with }} and ","object":{`}
	group.Spec.Tiers = []string{"example.com/rack", "*"}
	group.Spec.Endpoints[1].Domains = map[string]string{"example.com/rack": "r1"}
	return group
}

// encoded is an object as API servers write it, which know no types of these: with its
// fields in alphabetical order.
func encoded(t testing.TB, object runtime.Object) []byte {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// message is one of a watch.
func message(kind string, object []byte) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`, kind, object)
}

// trimmed is an object, or each of a list, as the catalogue gets it.
func trimmed(t testing.TB, object runtime.Object) []any {
	t.Helper()
	list, ok := object.(*v1alpha1.EndpointGroupList)
	if !ok {
		one, err := (&Trimmer{}).Group(object)
		if err != nil {
			t.Fatal(err)
		}
		return []any{one}
	}
	all := []any{list.ListMeta}
	for i := range list.Items {
		all = append(all, trimmed(t, &list.Items[i])...)
	}
	return all
}

func TestGroupsAreReadAsTheLibraryReadsThem(t *testing.T) {
	one := string(encoded(t, sent("web-1")))
	library, ours := codecs(t)
	theirs, _ := readers(t, library)
	own, _ := readers(t, ours)
	for _, test := range []struct {
		name, data string
		// quick says that it is read without the library.
		quick bool
	}{
		{"a group", one, true},
		{"a group with spaces", strings.ReplaceAll(one, `,"spec"`, " ,\n\t\"spec\""), true},
		{"a group with spaces before it", "  " + one, false},
		{"the kind after all else", `{"metadata":{"name":"web-1"},"spec":{"service":"web"},"kind":"EndpointGroup","apiVersion":"vicinity.dev/v1alpha1"}`, false},
		{"fields that nobody knows", strings.Replace(one, `"spec":{`, `"spec":{"later":[1,{"a":"b"}],`, 1), true},
		{"another case", strings.Replace(one, `"service":`, `"Service":`, 1), true},
		{"a status", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}`, false},
		{"another version", strings.Replace(one, "v1alpha1", "v9", 1), false},
		{"another kind", strings.Replace(one, `"EndpointGroup"`, `"RoutingPolicy"`, 1), false},
		{"a number for a name", strings.Replace(one, `"service":"web"`, `"service":7`, 1), false},
		{"cut off", one[:len(one)-1], false},
		{"more behind it", one + "{}", false},
		{"no kind", `{"apiVersion":"vicinity.dev/v1alpha1"}`, false},
		{"a list as text", `["apiVersion","vicinity.dev/v1alpha1","kind","EndpointGroup"]`, false},
		{"nothing", "", false},
		{"no JSON", "gone", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, _, wantErr := theirs.Decode([]byte(test.data), nil, nil)
			got, _, err := own.Decode([]byte(test.data), nil, nil)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("error %v, want %v", err, wantErr)
			}
			if err == nil && !reflect.DeepEqual(trimmed(t, got), trimmed(t, want)) {
				t.Errorf("read %+v, want %+v", trimmed(t, got), trimmed(t, want))
			}
			if quick := readGroup([]byte(test.data)) != nil; quick != test.quick {
				t.Errorf("read without the library: %t, want %t", quick, test.quick)
			}
		})
	}
}

func TestMessagesAreTakenApartAsTheLibraryDoes(t *testing.T) {
	library, ours := codecs(t)
	_, theirs := readers(t, library)
	_, own := readers(t, ours)
	one := string(encoded(t, sent("web-1")))
	for _, data := range []string{
		`{"type":"MODIFIED","object":` + one + `}`,
		`{"type":"DELETED","object":` + one + "}\n",
		` {"type":"ADDED","object":{"spec":{}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`,
		`{"object":` + one + `,"type":"MODIFIED"}`,
		`{ "type": "MODIFIED", "object": ` + one + ` }`,
		`{"type":"MODIFIED"}`,
		`{"type":"A\u0044DED","object":{}}`,
		`{"type":7,"object":{}}`,
		`{}`,
		``,
		`gone`,
	} {
		var want, got metav1.WatchEvent
		_, _, wantErr := theirs.Decode([]byte(data), nil, &want)
		_, _, err := own.Decode([]byte(data), nil, &got)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%q: error %v, want %v", data, err, wantErr)
		}
		if got.Type != want.Type || string(got.Object.Raw) != string(want.Object.Raw) {
			t.Errorf("%q: %s %s, want %s %s", data, got.Type, got.Object.Raw, want.Type, want.Object.Raw)
		}
	}
}

// TestWhatIsCutOffIsAnError has messages that the first reader does not look into.
func TestWhatIsCutOffIsAnError(t *testing.T) {
	_, ours := codecs(t)
	objects, messages := readers(t, ours)
	data := string(message("MODIFIED", encoded(t, sent("web-1"))))
	for end := range len(data) {
		var event metav1.WatchEvent
		if _, _, err := messages.Decode([]byte(data[:end]), nil, &event); err != nil {
			continue
		}
		if object, _, err := objects.Decode(event.Object.Raw, nil, nil); err == nil {
			t.Fatalf("the first %d of %d bytes are read as %+v", end, len(data), object)
		}
	}
}

func TestAnyGroupIsReadAsTheLibraryReadsIt(t *testing.T) {
	library, ours := codecs(t)
	theirs, theirMessages := readers(t, library)
	own, ownMessages := readers(t, ours)
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "web", `"},"object":{`, "}}", "\u2028", "<&>"}))
		texts := rapid.MapOfN(text, text, 0, 3)
		group := sent(text.Draw(r, "name"))
		group.Labels, group.Annotations = texts.Draw(r, "labels"), texts.Draw(r, "annotations")
		group.Spec.Service, group.Spec.Tiers = text.Draw(r, "service"), rapid.SliceOfN(text, 0, 3).Draw(r, "tiers")
		group.Spec.Endpoints = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) v1alpha1.GroupEndpoint {
			return v1alpha1.GroupEndpoint{
				Address: text.Draw(r, "address"), Zone: text.Draw(r, "zone"), NotReady: rapid.Bool().Draw(r, "not ready"), Domains: texts.Draw(r, "domains"),
			}
		}), 0, 3).Draw(r, "endpoints")
		data := message("MODIFIED", encoded(t, group))
		read := func(messages, objects runtime.Decoder) any {
			var event metav1.WatchEvent
			if _, _, err := messages.Decode(data, nil, &event); err != nil {
				r.Fatalf("%s: %v", data, err)
			}
			object, _, err := objects.Decode(event.Object.Raw, nil, nil)
			if err != nil {
				r.Fatalf("%s: %v", event.Object.Raw, err)
			}
			return trimmed(t, object)
		}
		if want, got := read(theirMessages, theirs), read(ownMessages, own); !reflect.DeepEqual(got, want) {
			r.Fatalf("%s is read as %+v, want %+v", data, got, want)
		}
	})
}

// TestMessagesFollowEachOther has two messages come by one stream, which are read from the
// same memory.
func TestMessagesFollowEachOther(t *testing.T) {
	library, ours := codecs(t)
	theirs, _ := readers(t, library)
	objects, messages, framer, err := runtime.NewClientNegotiator(ours, v1alpha1.GroupVersion).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	body := append(message("ADDED", encoded(t, sent("web-1"))), '\n')
	body = append(body, message("DELETED", encoded(t, sent("web-2")))...)
	stream := restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(bytes.NewReader(body))), messages), objects)
	defer stream.Close()
	read := map[watch.EventType]runtime.Object{}
	for range 2 {
		kind, object, err := stream.Decode()
		if err != nil {
			t.Fatal(err)
		}
		read[kind] = object
	}
	for kind, name := range map[watch.EventType]string{watch.Added: "web-1", watch.Deleted: "web-2"} {
		want, _, err := theirs.Decode(encoded(t, sent(name)), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := trimmed(t, read[kind]), trimmed(t, want); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, want %+v", kind, got, want)
		}
	}
}

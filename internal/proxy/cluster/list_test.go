package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// sentList is a list of groups as API servers send it.
func sentList(names ...string) *v1alpha1.EndpointGroupList {
	list := &v1alpha1.EndpointGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindGroupList},
		ListMeta: metav1.ListMeta{ResourceVersion: "17", Continue: "more"},
	}
	for _, name := range names {
		list.Items = append(list.Items, *sent(name))
	}
	return list
}

func TestGroupListsAreReadAsTheLibraryReadsThem(t *testing.T) {
	library, _ := codecs(t)
	theirs, _ := readers(t, library)
	two := string(encoded(t, sentList("web-1", "web-2")))
	for name, data := range map[string]string{
		"a list":                   two,
		"an empty list":            string(encoded(t, sentList())),
		"spaces":                   "\n " + strings.ReplaceAll(two, `,"spec"`, " ,\n\t\"spec\"") + "\n",
		"the kind comes first":     strings.Replace(two, `{"apiVersion"`, `{"kind":"EndpointGroupList","apiVersion"`, 1),
		"the items come last":      `{"kind":"EndpointGroupList","apiVersion":"vicinity.dev/v1alpha1","metadata":{"resourceVersion":"1"},"items":[` + string(encoded(t, sent("web-1"))) + `]}`,
		"no items":                 `{"kind":"EndpointGroupList","apiVersion":"vicinity.dev/v1alpha1","metadata":{"resourceVersion":"1"}}`,
		"null":                     `{"kind":"EndpointGroupList","apiVersion":"vicinity.dev/v1alpha1","metadata":{"resourceVersion":"1"},"items":null}`,
		"fields that nobody knows": strings.Replace(two, `"kind":"EndpointGroupList"`, `"later":[{"items":[]}],"kind":"EndpointGroupList"`, 1),
		"a field in another case":  strings.Replace(two, `"service":`, `"Service":`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			want, _, err := theirs.Decode([]byte(data), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readGroupList(iotest.OneByteReader(strings.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(trimmed(t, got), trimmed(t, want)) {
				t.Errorf("read %+v, want %+v", trimmed(t, got), trimmed(t, want))
			}
		})
	}
}

func TestGroupListsThatMakeNoSense(t *testing.T) {
	two := string(encoded(t, sentList("web-1", "web-2")))
	for _, test := range []struct{ name, data, want string }{
		{"nothing", "", "unexpected EOF"},
		{"no JSON", "gone", "invalid character"},
		{"text", `"gone"`, "gone where there should be {"},
		{"another kind", strings.Replace(two, "GroupList", "GroupLast", 1), `it is a "EndpointGroupLast" of "vicinity.dev/v1alpha1"; want a EndpointGroupList of vicinity.dev/v1alpha1`},
		{"another version", strings.Replace(two, `{"apiVersion":"vicinity.dev/v1alpha1","items"`, `{"apiVersion":"vicinity.dev/v9","items"`, 1), `of "vicinity.dev/v9"`},
		{"items that are none", `{"items":7}`, `field "items": 7 where a list begins`},
		{"a group that is none", `{"items":[7]}`, `field "items": json: cannot unmarshal number`},
		{"a number for a name", strings.Replace(two, `"service":"web"`, `"service":7`, 1), "service"},
		{"more behind it", two + "{}", "behind the list comes {"},
	} {
		if list, err := readGroupList(strings.NewReader(test.data)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v and error %v, want %q", test.name, list, err, test.want)
		}
	}
	for end := range len(two) {
		if list, err := readGroupList(strings.NewReader(two[:end])); err == nil {
			t.Fatalf("the first %d of %d bytes are read as %+v", end, len(two), list)
		}
	}
}

// apiWith is a client of an API server that answers lists of groups.
func apiWith(t *testing.T, answer http.HandlerFunc) cache.ListerWatcher {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c.Groups("!not-for.vicinity.dev/a")
}

func listAll(t *testing.T, from cache.ListerWatcher) (runtime.Object, error) {
	t.Helper()
	return cache.ToListerWithContext(from).ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500})
}

// Groups are read while the API server writes those that come after them.
func TestGroupsAreReadWhileTheyCome(t *testing.T) {
	parts := strings.SplitAfterN(string(encoded(t, sentList("web-1", "web-2"))), `"web-2"`, 2)
	asked := make(chan string, 1)
	list, err := listAll(t, apiWith(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.String() + " " + r.Header.Get("Accept")
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		for _, part := range parts {
			_, _ = io.WriteString(w, part) // to a client that stays
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(list.(*v1alpha1.EndpointGroupList).Items); got != 2 {
		t.Errorf("there are %d groups, want 2", got)
	}
	if want := "GET /apis/vicinity.dev/v1alpha1/endpointgroups?labelSelector=%21not-for.vicinity.dev%2Fa application/json"; !strings.HasPrefix(<-asked, want) {
		t.Errorf("asked for another than %s", want)
	}
}

// What an API server says instead of a list is told from what goes wrong on the way.
func TestGroupListsThatFail(t *testing.T) {
	_, err := listAll(t, apiWith(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"there is no such resource","reason":"NotFound","code":404}`)
	}))
	if !apierrors.IsNotFound(err) {
		t.Errorf("error %v, want one that says that there are no groups", err)
	}
	_, err = listAll(t, apiWith(t, func(w http.ResponseWriter, _ *http.Request) {
		whole := encoded(t, sentList("web-1", "web-2"))
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = w.Write(whole[:len(whole)/2]) // the rest never comes
	}))
	if err == nil || !strings.Contains(err.Error(), "reading a list of EndpointGroups") || apierrors.IsNotFound(err) {
		t.Errorf("error %v of a list that is cut off", err)
	}
}

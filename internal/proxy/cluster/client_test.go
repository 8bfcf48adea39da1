package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// A list requests all current groups for the zone.
func TestGroupsAreListed(t *testing.T) {
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		fmt.Fprint(w, `{"kind":"EndpointGroupList","apiVersion":"vicinity.dev/v1alpha1","metadata":{"resourceVersion":"17"},
			"items":[{"metadata":{"namespace":"shop","name":"web-1"},"spec":{"service":"web"}}]}`)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	source := cache.ToListerWithContext(c.Groups("!not-for.vicinity.dev/a"))
	list, err := source.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	groups := list.(*v1alpha1.EndpointGroupList)
	if len(groups.Items) != 1 || groups.Items[0].Spec.Service != "web" || groups.ResourceVersion != "17" {
		t.Errorf("read %+v", groups)
	}
	if got, want := <-asked, "/apis/vicinity.dev/v1alpha1/endpointgroups?labelSelector=%21not-for.vicinity.dev%2Fa"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

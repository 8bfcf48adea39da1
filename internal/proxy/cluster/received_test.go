package cluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"
)

func TestReceivedBytesAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "0123456789") }))
	defer server.Close()
	received := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "received_bytes_total"}, []string{"resource"})
	client, err := rest.HTTPClientFor(Counted(&rest.Config{Host: server.URL}, received))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/api/v1/services?watch=true", "/api/v1/services", "/apis/vicinity.dev/v1alpha1/endpointgroups",
		"/api/v1/nodes/node-a", "/apis/coordination.k8s.io/v1/namespaces/x/leases",
	} {
		response, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for resource, want := range map[string]float64{ResourceServices: 20, ResourceGroups: 10, ResourceSlices: 0, ResourceNodes: 0} {
		if got := testutil.ToFloat64(received.WithLabelValues(resource)); got != want {
			t.Errorf("%s: %g bytes, want %g", resource, got, want)
		}
	}
}

package proxy

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// A dry run says what the kernel would get, in the same words each time.
func TestDryRun(t *testing.T) {
	a := clustertest.NewAPI()
	options := Options{NodeName: "node-a", Settings: view.Settings{AllServices: true}}
	var out bytes.Buffer
	if err := dryRun(t.Context(), a, options, &out); err == nil || !strings.Contains(err.Error(), `the API does not have the node "node-a"`) {
		t.Errorf("without a node: %v", err)
	}
	a.Sources[cluster.ResourceNodes].Put(aNode("a"))
	a.Sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))
	a.Sources[cluster.ResourceServices].Put(aService("none", "10.96.0.2"))
	group := aGroup("web", "web-1", "10.1.0.1", "10.1.1.1", "not an address")
	group.Spec.Endpoints[0].Node = "node-a"
	a.Sources[cluster.ResourceGroups].Put(group)
	a.Sources[cluster.ResourceGroups].Put(notFor(aGroup("web", "web-b", "10.1.2.1"), "a"))
	six := aService("six", "2001:db8::1")
	six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	a.Sources[cluster.ResourceServices].Put(six)

	texts := map[string]bool{}
	for range 5 {
		out.Reset()
		if err := dryRun(t.Context(), a, options, &out); err != nil {
			t.Fatal(err)
		}
		texts[out.String()] = true
	}
	if len(texts) != 1 {
		t.Error("it says something else each time")
	}
	for _, want := range []string{"table ip vicinity {", "table ip6 vicinity {", "10.96.0.1", "10.1.0.1 . 10.1.0.1", "10.1.1.1 . 8080", "# shop/web: ", "10.1.0.0/24"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "10.1.2.1") {
		t.Errorf("it has an endpoint that is not for the zone:\n%s", out.String())
	}

	// Of a Service beyond its bound it says what the node would have.
	options.Elements.Service = 300
	a.Sources[cluster.ResourceServices].Put(withExternal(aService("web", "10.96.0.1"), 1000))
	out.Reset()
	if err := dryRun(t.Context(), a, options, &out); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"# shop/web: all of it takes 5": true, "and --max-service-elements allows 300; ": true, "198.18.0.0 . tcp . 80": true,
		"198.18.3.231": false, "# shop/none: all of it": false,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("that it says %q is %t:\n%s", text, !want, out.String())
		}
	}
	options.Elements.Service = 0
	a.Sources[cluster.ResourceServices].Put(aService("web", "10.96.0.1"))

	taker := aService("taker", "10.96.0.66")
	taker.Spec.ExternalIPs = []string{"10.96.0.1", "10.96.9.9", "192.0.2.77", "198.51.100.6", "203.0.113.1"}
	a.Sources[cluster.ResourceServices].Put(taker)
	a.Sources[cluster.ResourceRanges].Put(aRange("kubernetes", "10.96.0.0/16"))
	a.Sources[cluster.ResourceConfigMaps].Put(publishedNodes("192.0.2.77", ""))
	options.LeaseNamespace, options.API = "system", &rest.Config{Host: "198.51.100.6"}
	out.Reset()
	if err := dryRun(t.Context(), a, options, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# shop/taker: spec.externalIPs: 10.96.0.1 is refused: it is the cluster IP of Service shop/web; take it out\n",
		"# shop/taker: spec.externalIPs: 10.96.9.9 is refused: it is in the range that cluster IPs are from; take it out\n",
		"# shop/taker: spec.externalIPs: 192.0.2.77 is refused: it is an address of a node",
		"# shop/taker: spec.externalIPs: 198.51.100.6 is refused: the API server is reached by it; take it out\n",
		"203.0.113.1 . tcp . 80",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, out.String())
		}
	}
	a.Sources[cluster.ResourceRanges].Absent, a.Sources[cluster.ResourceConfigMaps].Forbidden = true, true
	if err := dryRun(t.Context(), a, options, &out); err != nil {
		t.Errorf("without ranges and addresses of nodes: %v", err)
	}

	a.Sources[cluster.ResourceGroups].Absent = true
	if err := dryRun(t.Context(), a, options, &out); err != nil {
		t.Errorf("without groups: %v", err)
	}
	options.AllServices = false
	if err := dryRun(t.Context(), a, options, &out); err == nil || !strings.Contains(err.Error(), "reading EndpointGroups") {
		t.Errorf("without groups, and without slices: %v", err)
	}
}

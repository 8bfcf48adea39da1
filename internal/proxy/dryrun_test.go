package proxy

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// A dry run prints, reproducibly, the rules that the kernel would get, the omissions, and the reasons.
func TestDryRun(t *testing.T) {
	a := clustertest.NewAPI()
	options := Options{
		NodeName: "node-a", LeaseNamespace: "system", API: &rest.Config{Host: "198.51.100.6"},
		Settings: view.Settings{AllServices: true, Elements: view.Bounds{Service: 300}},
	}
	var out bytes.Buffer
	if err := dryRun(t.Context(), a, options, &out); err == nil || !strings.Contains(err.Error(), `the API server has no Node "node-a"`) {
		t.Errorf("without a node: %v", err)
	}
	six, taker := aService("six", "2001:db8::1"), aService("taker", "10.96.0.66")
	six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	taker.Spec.ExternalIPs = []string{"10.96.0.1", "10.96.9.9", "192.0.2.77", "198.51.100.6", "203.0.113.1"}
	group := aGroup("web", "web-1", "10.1.0.1", "10.1.1.1", "not an address")
	group.Spec.Endpoints[0].Node = "node-a"
	for resource, objects := range map[string][]runtime.Object{
		cluster.ResourceNodes:      {aNode("a")},
		cluster.ResourceServices:   {aService("web", "10.96.0.1"), aService("none", "10.96.0.2"), six, taker, withExternal(aService("large", "10.96.0.3"), 1000)},
		cluster.ResourceGroups:     {group, notFor(aGroup("web", "web-b", "10.1.2.1"), "a"), aGroup("large", "large-1", "10.1.3.1")},
		cluster.ResourceRanges:     {aRange("kubernetes", "10.96.0.0/16")},
		cluster.ResourceConfigMaps: {publishedNodes("192.0.2.77", "")},
	} {
		for _, object := range objects {
			a.Sources[resource].Put(object)
		}
	}
	texts := map[string]bool{}
	for range 5 {
		out.Reset()
		if err := dryRun(t.Context(), a, options, &out); err != nil {
			t.Fatal(err)
		}
		texts[out.String()] = true
	}
	if len(texts) != 1 {
		t.Error("its message changes each time")
	}
	for text, want := range map[string]bool{
		"table ip vicinity {": true, "table ip6 vicinity {": true, "10.96.0.1": true, "10.1.0.1 . 10.1.0.1": true, "10.1.1.1 . 8080": true,
		"# shop/web: ": true, "10.1.0.0/24": true,
		"10.1.2.1": false, // which is not for the zone
		// For a Service beyond its bound, it reports what the node would have.
		"# shop/large: the whole Service needs ": true, "and --max-service-elements allows 300; ": true, "198.18.0.0 . tcp . 80": true,
		"198.18.3.231": false, "# shop/none: all of it": false,
		"# shop/taker: spec.externalIPs: 10.96.0.1 is refused: it is the cluster IP of Service shop/web; remove it\n": true,
		"# shop/taker: spec.externalIPs: 10.96.9.9 is refused: it is in a range of cluster IPs; remove it\n":          true,
		"# shop/taker: spec.externalIPs: 192.0.2.77 is refused: it is an address of a node":                           true,
		"# shop/taker: spec.externalIPs: 198.51.100.6 is refused: it is an address of the API server; remove it\n":    true,
		"203.0.113.1 . tcp . 80": true,
	} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("the output contains %q: %t\n%s", text, !want, out.String())
		}
	}
	a.Sources[cluster.ResourceRanges].Absent, a.Sources[cluster.ResourceConfigMaps].Forbidden, a.Sources[cluster.ResourceGroups].Absent = true, true, true
	if err := dryRun(t.Context(), a, options, &out); err != nil {
		t.Errorf("without groups, ranges and addresses of nodes: %v", err)
	}
	options.AllServices = false
	if err := dryRun(t.Context(), a, options, &out); err == nil || !strings.Contains(err.Error(), "reading EndpointGroups") {
		t.Errorf("without groups, and without slices: %v", err)
	}
}

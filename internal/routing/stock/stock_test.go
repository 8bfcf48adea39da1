package stock

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// stockSlice reads endpoints such as "1@a zones=a,b nodes=n1 !ready serving terminating": the last byte of the address, the
// zone, hints and conditions. Other conditions are nil.
func stockSlice(name, port string, endpoints ...string) *discoveryv1.EndpointSlice {
	number, protocol := int32(8080), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
	}
	for _, text := range endpoints {
		slice.Endpoints = append(slice.Endpoints, stockInput(text))
	}
	return slice
}

func stockInput(text string) discoveryv1.Endpoint {
	words := strings.Fields(text)
	last, zone, _ := strings.Cut(words[0], "@")
	e := discoveryv1.Endpoint{Addresses: []string{"10.0.0." + last}}
	if zone != "" {
		e.Zone = &zone
	}
	hints := &discoveryv1.EndpointHints{}
	for _, word := range words[1:] {
		value := !strings.HasPrefix(word, "!")
		key, list, _ := strings.Cut(strings.TrimPrefix(word, "!"), "=")
		switch key {
		case "zones":
			for _, name := range strings.Split(list, ",") {
				hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: name})
			}
			e.Hints = hints
		case "nodes":
			for _, name := range strings.Split(list, ",") {
				hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: name})
			}
			e.Hints = hints
		case "ready":
			e.Conditions.Ready = &value
		case "serving":
			e.Conditions.Serving = &value
		case "terminating":
			e.Conditions.Terminating = &value
		case "nohints":
			e.Hints = hints
		}
	}
	return e
}

// lastBytes returns the last bytes of the endpoints' addresses.
func lastBytes(endpoints []Endpoint) string {
	var parts []string
	for _, e := range endpoints {
		parts = append(parts, strings.TrimPrefix(e.Address, "10.0.0."))
	}
	return strings.Join(parts, " ")
}

func TestStockProxyChooses(t *testing.T) {
	for _, test := range []struct {
		name       string
		endpoints  []string
		node, zone string
		mode       kubeproxy.Mode
		why, want  string
	}{
		{
			name: "no endpoint", node: "n1", zone: "a",
			mode: kubeproxy.All, why: "no endpoint is ready",
		},
		{
			name: "no hints", endpoints: []string{"1@a", "2@b"}, node: "n1", zone: "a",
			mode: kubeproxy.All, why: "no endpoint has a hint for zones", want: "1 2",
		},
		{
			name: "hints without anything in them are none", endpoints: []string{"1@a nohints", "2@b zones=b"}, node: "n1", zone: "b",
			mode: kubeproxy.All, why: "1 of 2 ready endpoints have no hint for zones", want: "1 2",
		},
		{
			name: "hints for zones", endpoints: []string{"1@a zones=a", "2@b zones=b", "3@b zones=a,b"}, node: "n1", zone: "a",
			mode: kubeproxy.SameZone, want: "1 3",
		},
		{
			name: "the zone of the endpoint does not matter", endpoints: []string{"1@a zones=b", "2@b zones=a"}, node: "n1", zone: "a",
			mode: kubeproxy.SameZone, want: "2",
		},
		{
			name: "one ready endpoint without a hint spoils all", endpoints: []string{"1@a zones=a", "2@b zones=b", "3@b"}, node: "n1", zone: "a",
			mode: kubeproxy.All, why: "1 of 3 ready endpoints have no hint for zones", want: "1 2 3",
		},
		{
			name: "one that is not ready does not", endpoints: []string{"1@a zones=a", "2@b zones=b", "3@b !ready"}, node: "n1", zone: "a",
			mode: kubeproxy.SameZone, want: "1",
		},
		{
			name: "an endpoint without conditions is ready", endpoints: []string{"1@a zones=a ready", "2@b zones=a"}, node: "n1", zone: "a",
			mode: kubeproxy.SameZone, want: "1 2",
		},
		{
			name: "a zone that no hint names uses all", endpoints: []string{"1@a zones=a", "2@b zones=b"}, node: "n9", zone: "c",
			mode: kubeproxy.All, why: "no hint names c", want: "1 2",
		},
		{
			name: "a hint of one that is not ready does not name a zone", endpoints: []string{"1@a zones=a", "2@c zones=c !ready"}, node: "n9", zone: "c",
			mode: kubeproxy.All, why: "no hint names c", want: "1",
		},
		{
			name: "a node without a zone uses all", endpoints: []string{"1@a zones=a", "2@b zones=b"}, node: "n9",
			mode: kubeproxy.All, why: "the node has no zone", want: "1 2",
		},
		{
			name: "hints for nodes come first", endpoints: []string{"1@a zones=a nodes=n1", "2@a zones=a nodes=n2"}, node: "n2", zone: "a",
			mode: kubeproxy.SameNode, want: "2",
		},
		{
			name: "a node that no hint names falls back to its zone", endpoints: []string{"1@a zones=a nodes=n1", "2@b zones=b nodes=n2"}, node: "n3", zone: "b",
			mode: kubeproxy.SameZone, want: "2",
		},
		{
			name: "without a hint for nodes on each, those for zones count", endpoints: []string{"1@a zones=a nodes=n1", "2@b zones=b"}, node: "n1", zone: "b",
			mode: kubeproxy.SameZone, want: "2",
		},
		{
			name: "hints for nodes alone", endpoints: []string{"1@a nodes=n1", "2@b nodes=n2"}, node: "n3", zone: "a",
			mode: kubeproxy.All, why: "no endpoint has a hint for zones", want: "1 2",
		},
		{
			name: "none is ready: terminating ones that serve are used, whatever the hints",
			endpoints: []string{
				"1@a zones=a !ready serving terminating", "2@b zones=b !ready terminating", "3@a zones=a !ready !serving terminating", "4@a zones=a !ready serving",
			},
			node: "n1", zone: "a",
			mode: kubeproxy.All, why: "no endpoint is ready; terminating ones that still serve are used", want: "1 2",
		},
		{
			name: "some are ready: terminating ones are not used", endpoints: []string{"1@a zones=a !ready serving terminating", "2@b zones=a"}, node: "n1", zone: "a",
			mode: kubeproxy.SameZone, want: "2",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ports := Ports([]*discoveryv1.EndpointSlice{stockSlice("web-1", "http", test.endpoints...)})
			if len(ports) != 1 {
				t.Fatalf("%d ports, want 1", len(ports))
			}
			got := ports[0].Index().Choose(test.node, test.zone)
			if got.Mode != test.mode || got.Why != test.why || lastBytes(got.Endpoints) != test.want {
				t.Errorf("got mode %q because %q with %q, want %q because %q with %q",
					got.Mode, got.Why, lastBytes(got.Endpoints), test.mode, test.why, test.want)
			}
		})
	}
}

func TestStockPortsAreReadAsByKubeProxy(t *testing.T) {
	labelled := func(key string) *discoveryv1.EndpointSlice {
		slice := stockSlice("labelled", "http", "9@a")
		slice.Labels[key] = ""
		return slice
	}
	nameless, zero := stockSlice("nameless", "http", "9@a"), stockSlice("zero", "http", "9@a")
	nameless.Ports[0].Name = nil
	*zero.Ports[0].Port = 0
	names := stockSlice("names", "http", "9@a")
	names.AddressType = discoveryv1.AddressTypeFQDN
	six := stockSlice("six", "http", "9@a")
	six.AddressType, six.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"2001:db8:0::1"}
	other := stockSlice("web-3", "http", "4@a")
	*other.Ports[0].Port = 9090
	given := []*discoveryv1.EndpointSlice{
		stockSlice("web-2", "http", "1@b", "2@b !ready terminating"),
		stockSlice("web-1", "http", "1@a", "2@a", "3@a"),
		stockSlice("web-1m", "metrics", "1@a"),
		other, six, names, nameless, zero, labelled(v1alpha1.LabelServiceProxyName), labelled(corev1.IsHeadlessService),
	}
	before := make([]*discoveryv1.EndpointSlice, len(given))
	for i := range given {
		before[i] = given[i].DeepCopy()
	}
	var got []string
	for _, port := range Ports(given) {
		for _, e := range port.Endpoints {
			got = append(got, strings.Join([]string{string(port.Family), port.Name, e.Address, e.Zone}, " "))
		}
	}
	want := []string{
		"IPv4 http 10.0.0.1 a", // the first slice counts
		"IPv4 http 10.0.0.2 a", // and no endpoint that is about to go
		"IPv4 http 10.0.0.3 a",
		"IPv4 http 10.0.0.4 a",
		"IPv4 metrics 10.0.0.1 a",
		"IPv6 http 2001:db8::1 a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !reflect.DeepEqual(given, before) {
		t.Error("the slices are changed")
	}
}

func TestStockView(t *testing.T) {
	ports := Ports([]*discoveryv1.EndpointSlice{
		stockSlice("web-1", "http", "1@a zones=a", "2@a zones=a", "3@b zones=a,b", "4@b zones=b"),
	})
	clients := []Client{{"n1", "a", 0.25}, {"n2", "a", 0.25}, {"n3", "b", 0.25}, {"n4", "c", 0.25}}
	rows, figures := ports[0].Index().View(clients)
	wantRows := []Row{
		{Zone: "a", Nodes: 2, Mode: kubeproxy.SameZone, Uses: map[string]int{"a": 2, "b": 1}},
		{Zone: "b", Nodes: 1, Mode: kubeproxy.SameZone, Uses: map[string]int{"b": 2}},
		{Zone: "c", Nodes: 1, Mode: kubeproxy.All, Why: "no hint names c", Uses: map[string]int{"a": 2, "b": 2}},
	}
	if !reflect.DeepEqual(rows, wantRows) {
		t.Errorf("got\n%+v\nwant\n%+v", rows, wantRows)
	}
	// Endpoint 3 gets a third of zone a, half of zone b and a quarter of zone c.
	want := allocate.Figures{InZone: 0.5*2/3 + 0.25, Overload: 4*(0.5/3+0.25/2+0.25/4) - 1}
	if math.Abs(figures.InZone-want.InZone) > 1e-9 || math.Abs(figures.Overload-want.Overload) > 1e-9 || figures.Unreached != 0 {
		t.Errorf("got %+v, want %+v", figures, want)
	}
	empty := Port{}
	if _, figures := empty.Index().View(clients); figures.Unreached != 4 {
		t.Errorf("%d clients are unreached, want 4", figures.Unreached)
	}
}

package vicinity

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// drawn is a random small cluster with the Service web, as the API has it.
type drawn struct {
	service  *corev1.Service
	slices   []*discoveryv1.EndpointSlice
	groups   []*v1alpha1.EndpointGroup
	locators []*v1alpha1.PodLocator
}

var someNodes = rapid.SampledFrom([]string{"a1", "a2", "b1", "c1", "x1", ""})

// drawnAddress is one of few, so that groups, slices and pods meet.
func drawnAddress(t *rapid.T, family int) string {
	return addressOn(someNodes.Draw(t, "address of"), rapid.IntRange(1, 2).Draw(t, "number"), family).String()
}

func draw(t *rapid.T) *drawn {
	d := &drawn{service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}
	headless := rapid.IntRange(0, 4).Draw(t, "kind") > 0
	d.service.Spec.ClusterIP, d.service.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	if !headless {
		d.service.Spec.ClusterIP = "10.96.0.1"
	}
	d.service.Spec.ClusterIPs = []string{d.service.Spec.ClusterIP}
	tiers := rapid.SampledFrom([][]string{nil, {"*"}, {zone}, {host, zone}, {host, zone, "*"}, {"rack", "*"}, {region}})
	for family, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for i := range rapid.IntRange(0, 2).Draw(t, "slices") {
			slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", family, i), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
			slice.AddressType = kind
			if headless && rapid.IntRange(0, 3).Draw(t, "label") > 0 {
				slice.Labels[names.Selector] = ""
			}
			for range rapid.IntRange(0, 4).Draw(t, "endpoints") {
				e := discoveryv1.Endpoint{Addresses: []string{drawnAddress(t, family)}}
				if node := someNodes.Draw(t, "node"); node != "" {
					e.NodeName, e.Zone = &node, new(node[:1])
				}
				if rapid.IntRange(0, 3).Draw(t, "ready") == 0 {
					e.Conditions.Ready = new(false)
				}
				if rapid.Bool().Draw(t, "named") {
					e.Hostname = new(rapid.SampledFrom([]string{"db-0", "db-1"}).Draw(t, "hostname"))
				}
				if slices.ContainsFunc(slice.Endpoints, func(o discoveryv1.Endpoint) bool { return o.Addresses[0] == e.Addresses[0] }) {
					continue // Kubernetes has an address once in a slice
				}
				slice.Endpoints = append(slice.Endpoints, e)
			}
			for _, port := range rapid.SampledFrom([][]string{{"http"}, {"http", "grpc"}, nil}).Draw(t, "ports") {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port, Port: new(int32(8000 + len(port))), Protocol: new(corev1.ProtocolTCP)})
			}
			d.slices = append(d.slices, slice)
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "groups") {
			g := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", family, i), Labels: map[string]string{names.Selector: "", v1alpha1.LabelService: "web"}}}
			g.Spec = v1alpha1.EndpointGroupSpec{Service: "web", AddressType: [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[family], Tiers: tiers.Draw(t, "tiers"), LocalOnly: rapid.IntRange(0, 3).Draw(t, "local") == 0}
			for _, z := range []string{"a", "b", "c"} {
				switch rapid.IntRange(0, 2).Draw(t, "for") {
				case 0:
					g.Labels[v1alpha1.LabelNotForPrefix+z] = ""
				case 1:
					g.Spec.Consumers = append(g.Spec.Consumers, v1alpha1.GroupConsumer{Zone: z})
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "endpoints of the group") {
				e := v1alpha1.GroupEndpoint{Address: drawnAddress(t, family), Node: someNodes.Draw(t, "node"), Domains: map[string]string{}}
				if e.Node != "" {
					e.Zone, e.Domains["rack"] = e.Node[:1], "rack-"+e.Node
				}
				g.Spec.Endpoints = append(g.Spec.Endpoints, e)
			}
			d.groups = append(d.groups, g)
		}
	}
	// Pods are of different seconds: otherwise it counts what the server learned of last, which vicinity
	// explain cannot know.
	pods := rapid.Permutation([]int64{5, 15, 25}).Draw(t, "pods created")
	for i := range rapid.IntRange(0, 3).Draw(t, "locators") {
		l := &v1alpha1.PodLocator{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("pod-", i), CreationTimestamp: metav1.Unix(int64(10+i), 0)}}
		if rapid.IntRange(0, 3).Draw(t, "with the pod's age") > 0 {
			l.PodCreationTimestamp = new(metav1.Unix(pods[i], 0))
		}
		l.IPs, l.NodeName = []string{rapid.SampledFrom([]string{offRanges, onA1}).Draw(t, "of")}, rapid.SampledFrom([]string{"a1", "b1", "gone"}).Draw(t, "node")
		l.NodeLabels = map[string]string{zone: l.NodeName[:1], "rack": "rack-" + l.NodeName}
		if rapid.IntRange(0, 3).Draw(t, "deleted") == 0 {
			l.DeletionTimestamp = new(metav1.Unix(30, 0))
		}
		d.locators = append(d.locators, l)
	}
	return d
}

// offRanges is the address of a client that PodLocators alone may locate.
const offRanges = "172.16.0.1"

var clients = []string{onA1, onC1, elsewhere, "192.168.0.3", "fd03::9", offRanges, offRanges}

// serve has the server know the cluster.
func (d *drawn) serve(t testing.TB, lines ...string) *world {
	w := newWorld(t, lines...)
	service, err := object.ToService(d.service.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	w.services["web"] = service.(*object.Service)
	for _, s := range d.slices {
		known, err := object.EndpointSliceToEndpointsWithZones(s.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		w.endpoints["web"] = append(w.endpoints["web"], known.(*object.Endpoints))
		if _, watched := s.Labels[names.Selector]; watched {
			w.cluster.setSlice(s)
		}
	}
	for _, g := range d.groups {
		w.cluster.setGroup(g)
	}
	for _, l := range d.locators {
		w.cluster.setLocator(l)
	}
	return w
}

// explain explains a name to a client, as the command does.
func (d *drawn) explain(t *rapid.T, client, name string, plan bool) *inspect.NameExplanation {
	reading := inspect.Reading{Input: routing.Input{Service: d.service, Cluster: intent.NewCluster(worldNodes()), Slices: d.slices, Groups: d.groups}}
	e, err := inspect.ExplainName(inspect.NameReading{
		Name: name, Zone: "cluster.local.", Plan: plan, Service: &reading,
		Client: inspect.ClientReading{Addresses: []netip.Addr{netip.MustParseAddr(client)}, Nodes: worldNodes(), Locators: d.locators},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// explainedAddresses returns the addresses of a record type that vicinity explain dns shows.
func explainedAddresses(e *inspect.NameExplanation, kind string) []string {
	var addresses []string
	for _, a := range e.Answers {
		for _, r := range a.Records {
			if r.Type == kind {
				addresses = append(addresses, r.Address)
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}

// answered returns the addresses of a message.
func answered(m *dns.Msg) []string {
	var addresses []string
	for _, rr := range m.Answer {
		if rr.Header().Rrtype == m.Question[0].Qtype {
			addresses = append(addresses, addressOf(rr).String())
		}
	}
	slices.Sort(addresses)
	return addresses
}

// The server and vicinity explain dns agree for all kinds of names and clusters. An answer that is explained as
// unchanged is the same for all clients.
func TestExplainAgrees(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		plan := rapid.Bool().Draw(t, "plan")
		var lines []string
		if plan {
			lines = []string{"plan"}
		}
		w := d.serve(outer, lines...)
		for _, client := range clients {
			at, _ := w.cluster.clients.Lookup(netip.MustParseAddr(client))
			if got := d.explain(t, client, "web.shop.svc.cluster.local.", plan).Client; got.Node != at.Node || got.Located != at.Source.String() {
				t.Fatalf("%s is explained to be at %+v, and the server finds it at %+v", client, got, at)
			}
		}
		client, other := rapid.SampledFrom(clients).Draw(t, "client"), rapid.SampledFrom(clients).Draw(t, "other client")
		for _, prefix := range []string{
			"", "_http._tcp.", "_grpc._tcp.", "_ftp._tcp.", "_http._udp.", "db-0.", "10-1-0-1.", "fd01--1.", "gone.", "a.pin._zone.", "b.prefer._zone.", "z.prefer._zone.", "a.b.c.",
			"A.Prefer._zone.", "prefer._zone.", "*.",
		} {
			name := prefix + "web.shop.svc.cluster.local."
			e := d.explain(t, client, name, plan)
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
				answer := w.ask(client, name, qtype)
				kind, want := dns.TypeToString[qtype], answered(answer)
				if missing := answer.Rcode == dns.RcodeNameError; missing != e.Missing {
					t.Fatalf("%s for %s, plan is %t: by the rule %s explained is that it is missing: %t, answered is %s", name, client, plan, e.Rule, e.Missing, dns.RcodeToString[answer.Rcode])
				}
				got := explainedAddresses(e, kind)
				if e.Rule == inspect.RuleUnchanged {
					got = answered(w.ask(other, name, qtype))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%s %s for %s, plan is %t: by the rule %s explained is %q, answered is %q", name, kind, client, plan, e.Rule, got, want)
				}
			}
		}
	})
}

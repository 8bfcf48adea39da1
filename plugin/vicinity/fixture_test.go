package vicinity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/kubernetes"
	"github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/topology"
)

// The names of labels in tiers.
const (
	host   = topology.Hostname
	zone   = topology.Zone
	region = topology.Region
)

// world is a cluster with the plugin kubernetes, which gets its objects from here instead of an
// API server, and the plugin before it.
type world struct {
	*Vicinity
	t testing.TB
	// objects of the plugin kubernetes
	services  map[string]*object.Service
	endpoints map[string][]*object.Endpoints
}

// newWorld has the nodes a1, a2, b1 and c1, each in the zone that its name begins with and in a
// rack: pods of a1 have addresses in 10.1.0.0/24 and fd01::/64, those of a2 in 10.2.0.0/24 and
// so on. All of zone a and b are in the region r.
func newWorld(t testing.TB, lines ...string) *world {
	w := &world{t: t, services: map[string]*object.Service{}, endpoints: map[string][]*object.Endpoints{}}
	v, _, err := parse(caddy.NewTestController("dns", "vicinity cluster.local {\n"+strings.Join(lines, "\n")+"\n}"))
	if err != nil {
		t.Fatal(err)
	}
	backend, err := kubernetes.ParseStanza(testStanza(t, "kubernetes cluster.local in-addr.arpa {\nzonal\n}"))
	if err != nil {
		t.Fatal(err)
	}
	backend.APIConn = w
	v.Next = backend
	w.Vicinity = v
	for _, node := range worldNodes() {
		v.cluster.setNode(node)
	}
	return w
}

func worldNodes() []*corev1.Node {
	var nodes []*corev1.Node
	for i, name := range []string{"a1", "a2", "b1", "c1"} {
		labels := map[string]string{topology.Hostname: name, topology.Zone: name[:1], "rack": "rack-" + name}
		if name != "c1" {
			labels[topology.Region] = "r"
		}
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec:       corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.%d.0.0/24", i+1), fmt.Sprintf("fd0%d::/64", i+1)}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.0.%d", i+1)}}},
		})
	}
	return nodes
}

func testStanza(t testing.TB, text string) *caddy.Controller {
	c := caddy.NewTestController("dns", text)
	if !c.Next() {
		t.Fatal("no stanza")
	}
	return c
}

// addressOn is the address number n of pods on a node.
func addressOn(node string, n int, family int) netip.Addr {
	i := slices.Index([]string{"", "a1", "a2", "b1", "c1"}, node)
	if i < 0 {
		i = 9 // of a node that nothing is known of
	}
	if family == names.V6 {
		return netip.MustParseAddr(fmt.Sprintf("fd0%d::%x", i, n))
	}
	return netip.AddrFrom4([4]byte{10, byte(i), byte(n >> 8), byte(n)})
}

// headless adds a headless Service of ready endpoints such as "1@a1" or "db-0=1@a1", in slices and, except those with a
// plus as in "2@b1+", in a group with these tiers.
func (w *world) headless(name, tiers, endpoints string, families ...int) {
	if families == nil {
		families = []int{names.V4}
	}
	w.services[name] = &object.Service{Name: name, Namespace: "shop", ClusterIPs: []string{corev1.ClusterIPNone}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}
	w.endpoints[name] = nil
	for _, family := range families {
		known := &object.Endpoints{Name: name, Namespace: "shop", Index: object.EndpointsKey(name, "shop"), Zones: map[string]string{}, Subsets: []object.EndpointSubset{{Ports: []object.EndpointPort{{Name: "http", Port: 80, Protocol: "TCP"}}}}}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(name, family), Labels: map[string]string{discoveryv1.LabelServiceName: name}}}
		group := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(name, family)}}
		group.Spec = v1alpha1.EndpointGroupSpec{Service: name, AddressType: [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[family], AnyReady: true}
		if tiers != "" {
			group.Spec.Tiers = strings.Split(tiers, ",")
		}
		for word := range strings.FieldsSeq(endpoints) {
			word, isNew := strings.CutSuffix(word, "+")
			host, rest, named := strings.Cut(word, "=")
			if !named {
				host, rest = "", word
			}
			number, node, _ := strings.Cut(rest, "@")
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil {
				w.t.Fatal(err)
			}
			address := addressOn(node, n, family).String()
			e := discoveryv1.Endpoint{Addresses: []string{address}}
			g := v1alpha1.GroupEndpoint{Address: address, Node: node, Domains: map[string]string{}}
			if node != "" {
				e.NodeName, e.Zone = &node, ptr.To(node[:1])
				g.Zone, g.Domains["rack"] = node[:1], "rack-"+node
				if g.Zone != "c" {
					g.Domains[topology.Region] = "r"
				}
				known.Zones[address] = node[:1]
			}
			if host != "" {
				e.Hostname = &host
			}
			slice.Endpoints = append(slice.Endpoints, e)
			known.Subsets[0].Addresses = append(known.Subsets[0].Addresses, object.EndpointAddress{IP: address, Hostname: host})
			if !isNew {
				group.Spec.Endpoints = append(group.Spec.Endpoints, g)
			}
		}
		w.endpoints[name] = append(w.endpoints[name], known)
		w.cluster.setSlice(slice)
		w.cluster.setGroup(group)
	}
}

// service makes a Service of another kind.
func (w *world) service(s *object.Service) { s.Namespace = "shop"; w.services[s.Name] = s }

// ask sends a query from a client's address and returns the answer.
func (w *world) ask(client, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	w.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	for _, do := range change {
		do(m)
	}
	return ask(w.t, w.Vicinity, client, m)
}

func ask(t testing.TB, h plugin.Handler, client string, m *dns.Msg) *dns.Msg {
	t.Helper()
	r := dnstest.NewRecorder(&test.ResponseWriter{RemoteIP: client})
	if _, err := h.ServeDNS(context.Background(), r, m); err != nil {
		t.Fatal(err)
	}
	if r.Msg == nil {
		t.Fatal("no answer")
	}
	if _, err := r.Msg.Pack(); err != nil {
		t.Fatal(err)
	}
	return r.Msg
}

// brief describes an answer: its code unless that is NOERROR, its records with the
// endpoints as node/number, the additional ones after a plus, and "soa" for nothing.
func brief(m *dns.Msg) string {
	var words []string
	if m.Rcode != dns.RcodeSuccess {
		words = append(words, dns.RcodeToString[m.Rcode])
	}
	var answers, extra []string
	for _, rr := range m.Answer {
		answers = append(answers, briefRecord(rr))
	}
	for _, rr := range m.Extra {
		if rr.Header().Rrtype != dns.TypeOPT {
			extra = append(extra, "+"+briefRecord(rr))
		}
	}
	slices.Sort(answers)
	slices.Sort(extra)
	words = append(append(words, answers...), extra...)
	for _, rr := range m.Ns {
		words = append(words, strings.ToLower(dns.TypeToString[rr.Header().Rrtype]))
	}
	return strings.Join(words, " ")
}

func briefRecord(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.SRV:
		return names.Label(rr.Target)
	case *dns.CNAME:
		return "->" + rr.Target
	}
	address := addressOf(rr)
	for _, node := range []string{"a1", "a2", "b1", "c1"} {
		for family := range 2 {
			base := addressOn(node, 0, family)
			if prefix, _ := base.Prefix([...]int{16, 64}[family]); prefix.Contains(address) {
				bytes := address.AsSlice()
				return fmt.Sprintf("%s/%d", node, int(bytes[len(bytes)-2])<<8+int(bytes[len(bytes)-1]))
			}
		}
	}
	return address.String()
}

// The world answers the requests of the plugin kubernetes.

func (w *world) SvcIndex(key string) []*object.Service {
	name, namespace, _ := strings.Cut(key, ".")
	if s := w.services[name]; s != nil && namespace == "shop" {
		return []*object.Service{s}
	}
	return nil
}

func (w *world) EpIndex(key string) []*object.Endpoints {
	name, _, _ := strings.Cut(key, ".")
	return w.endpoints[name]
}

func (w *world) EpIndexReverse(ip string) []*object.Endpoints {
	for _, e := range w.endpoints["web"] {
		for _, a := range e.Subsets[0].Addresses {
			if a.IP == ip {
				return []*object.Endpoints{e}
			}
		}
	}
	return nil
}

func (w *world) GetNamespaceByName(name string) (*object.Namespace, error) {
	if name != "shop" {
		return nil, fmt.Errorf("no namespace %s", name)
	}
	return &object.Namespace{Name: name}, nil
}

func (w *world) GetNodeByName(context.Context, string) (*corev1.Node, error) {
	return &corev1.Node{}, nil
}
func (w *world) ServiceList() []*object.Service                   { return nil }
func (w *world) EndpointsList() []*object.Endpoints               { return nil }
func (w *world) ServiceImportList() []*object.ServiceImport       { return nil }
func (w *world) SvcIndexReverse(string) []*object.Service         { return nil }
func (w *world) SvcExtIndexReverse(string) []*object.Service      { return nil }
func (w *world) SvcImportIndex(string) []*object.ServiceImport    { return nil }
func (w *world) PodIndex(string) []*object.Pod                    { return nil }
func (w *world) McEpIndex(string) []*object.MultiClusterEndpoints { return nil }
func (w *world) Run()                                             {}
func (w *world) HasSynced() bool                                  { return true }
func (w *world) Stop() error                                      { return nil }
func (w *world) Modified(kubernetes.ModifiedMode) int64           { return 1 }

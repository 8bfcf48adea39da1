package vicinity

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names"
)

const (
	webName   = "web.shop.svc.cluster.local."
	portName  = "_http._tcp." + webName
	onA1      = "10.1.0.200"
	onC1      = "10.4.0.200"
	elsewhere = "203.0.113.7"
)

// All kinds of names in a cluster with a headless Service web.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name     string
		question string
		qtype    uint16 // A by default
		client   string // on the node a1 by default
		want     string
	}{
		{name: "nearest", question: webName, want: "a1/1 a1/2"},
		{name: "in any case", question: "WEB.shop.SVC.Cluster.Local.", want: "a1/1 a1/2"},
		{name: "the zone's", question: webName, client: "10.2.0.9", want: "a1/1 a1/2"},
		{name: "elsewhere", question: webName, client: onC1, want: "a1/1 a1/2 b1/1"},
		{name: "the node's own address", question: webName, client: "192.168.0.1", want: "a1/1 a1/2"},
		{name: "by the other family", question: webName, client: "fd01::99", want: "a1/1 a1/2"},
		{name: "mapped into IPv6", question: webName, client: "::ffff:10.1.0.200", want: "a1/1 a1/2"},
		{name: "from outside", question: webName, client: elsewhere, want: "a1/1 a1/2 b1/1"},
		{name: "of the other family, which the Service does not have", question: webName, qtype: dns.TypeAAAA, want: "soa"},
		{name: "SRV of a port", question: portName, qtype: dns.TypeSRV, want: "10-1-0-2 db-0 +a1/1 +a1/2"},
		{name: "SRV of the Service", question: webName, qtype: dns.TypeSRV, want: "10-1-0-2 db-0 +a1/1 +a1/2"},
		{name: "SRV elsewhere", question: portName, qtype: dns.TypeSRV, client: onC1, want: "10-1-0-2 10-3-0-1 db-0 +a1/1 +a1/2 +b1/1"},
		{name: "addresses of a port", question: portName, want: "a1/1 a1/2"},
		{name: "an endpoint elsewhere", question: "10-3-0-1." + webName, want: "b1/1"},
		{name: "an endpoint by hostname", question: "db-0." + webName, client: onC1, want: "a1/1"},
		{name: "both families", question: "dual.shop.svc.cluster.local.", want: "a1/1"},
		{name: "both families, IPv6", question: "dual.shop.svc.cluster.local.", qtype: dns.TypeAAAA, want: "a1/1"},
		{name: "both families, SRV", question: "dual.shop.svc.cluster.local.", qtype: dns.TypeSRV, want: "10-1-0-1 fd01--1 +a1/1 +a1/1"},
		{name: "hard, none near", question: "hard.shop.svc.cluster.local.", client: onC1, want: "soa"},
		{name: "hard, none near, SRV", question: "_http._tcp.hard.shop.svc.cluster.local.", qtype: dns.TypeSRV, client: onC1, want: "soa"},
		{name: "of no such Service", question: "no.shop.svc.cluster.local.", want: "NXDOMAIN soa"},
		{name: "of no such port", question: "_ftp._tcp." + webName, qtype: dns.TypeSRV, want: "NXDOMAIN soa"},
		{name: "a headless Service without groups", question: "whole.shop.svc.cluster.local.", want: "a1/1 b1/1"},
		{name: "a cluster IP", question: "vip.shop.svc.cluster.local.", want: "10.96.0.1"},
		{name: "an external name", question: "ext.shop.svc.cluster.local.", want: "->" + webName + " a1/1 a1/2"},
		{name: "an external name of a hard one", question: "exthard.shop.svc.cluster.local.", client: onC1, want: "->hard.shop.svc.cluster.local. soa"},
		{name: "a wildcard", question: "*.shop.svc.cluster.local.", want: "NXDOMAIN soa"},
		{name: "a wildcard of endpoints", question: "*." + webName, want: "NXDOMAIN soa"},
		{name: "reverse", question: "1.0.3.10.in-addr.arpa.", qtype: dns.TypePTR, want: "10-3-0-1." + webName},
		{name: "pinned to a zone", question: "b.pin._zone." + webName, want: "b1/1"},
		{name: "that prefers a zone", question: "b.prefer._zone." + webName, want: "b1/1"},
		{name: "that prefers a zone without any", question: "c.prefer._zone." + webName, want: "a1/1 a1/2 b1/1"},
		{name: "text", question: webName, qtype: dns.TypeTXT, want: "soa"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.headless("web", zone+",*", "db-0=1@a1 2@a1 1@b1")
			w.headless("hard", zone, "1@a1 1@b1")
			w.headless("dual", zone, "1@a1 1@b1", names.V4, names.V6)
			w.headless("whole", "", "1@a1 1@b1")
			w.cluster.deleteGroup("shop", "whole", "whole0")
			ports := []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
			w.service(&object.Service{Name: "vip", ClusterIPs: []string{"10.96.0.1"}, Ports: ports})
			w.service(&object.Service{Name: "ext", Type: corev1.ServiceTypeExternalName, ExternalName: strings.TrimSuffix(webName, ".")})
			w.service(&object.Service{Name: "exthard", Type: corev1.ServiceTypeExternalName, ExternalName: "hard.shop.svc.cluster.local"})
			client := tt.client
			if client == "" {
				client = onA1
			}
			qtype := tt.qtype
			if qtype == 0 {
				qtype = dns.TypeA
			}
			m := w.ask(client, tt.question, qtype)
			got := brief(m)
			if qtype == dns.TypePTR {
				got = m.Answer[0].(*dns.PTR).Ptr
			}
			if got != tt.want {
				t.Errorf("got %q, want %q:\n%v", got, tt.want, m)
			}
			if m.Question[0].Name != tt.question {
				t.Errorf("the question is %q", m.Question[0].Name)
			}
		})
	}
}

// With plan, a name that prefers a zone has the answer of a client in that zone.
func TestPlan(t *testing.T) {
	w := newWorld(t, "plan")
	w.headless("web", zone+",*", "1@a1 1@b1 2@b1")
	w.headless("hard", zone, "1@a1")
	w.headless("empty", zone, "")
	given := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web0", Labels: map[string]string{v1alpha1.LabelNotForPrefix + "Zone-D.eu": ""}}}
	given.Spec = v1alpha1.EndpointGroupSpec{Service: "web", AddressType: corev1.IPv4Protocol, Consumers: []v1alpha1.GroupConsumer{{Zone: "a"}}, Endpoints: []v1alpha1.GroupEndpoint{{Address: "10.1.0.1", Node: "a1", Zone: "a"}, {Address: "10.3.0.1", Node: "b1", Zone: "b"}}}
	w.cluster.setGroup(given)
	other := given.DeepCopy()
	other.Name, other.Labels = "web1", map[string]string{v1alpha1.LabelNotForPrefix + "a": "", v1alpha1.LabelNotForPrefix + "b": ""}
	other.Spec.Consumers = []v1alpha1.GroupConsumer{{Zone: "Zone-D.eu"}}
	other.Spec.Endpoints = []v1alpha1.GroupEndpoint{{Address: "10.3.0.2", Node: "b1", Zone: "b"}}
	w.cluster.setGroup(other)
	for question, want := range map[string]string{
		"a.prefer._zone." + webName:                          "a1/1 b1/1",
		"zone-d.EU.Prefer._zone." + webName:                  "b1/2",
		"a.pin._zone." + webName:                             "a1/1",
		"a.prefer._zone.hard.shop.svc.cluster.local.":        "a1/1",
		"b.prefer._zone.hard.shop.svc.cluster.local.":        "soa",
		"b.prefer._zone.empty.shop.svc.cluster.local.":       "soa",
		"b.prefer._zone.no.shop.svc.cluster.local.":          "NXDOMAIN soa",
		"prefer._zone." + webName:                            "NXDOMAIN soa",
		"b.hope._zone." + webName:                            "NXDOMAIN soa",
		strings.Repeat("x", 63) + ".prefer._zone." + webName: "a1/1 b1/1 b1/2",
		"c.prefer._zone." + "1-2-3-4." + webName:             "NXDOMAIN soa",
	} {
		m := w.ask(elsewhere, question, dns.TypeA)
		if got := brief(m); got != want {
			t.Errorf("%s: got %q, want %q", question, got, want)
		}
		if m.Question[0].Name != question {
			t.Errorf("%s: the question is %s", question, m.Question[0].Name)
		}
		for _, rr := range m.Answer {
			if rr.Header().Name != question {
				t.Errorf("%s: the answer has a record of %s", question, rr.Header().Name)
			}
		}
	}
}

// canned answers with the same message each time, as a cache that does not copy.
func canned(m *dns.Msg) plugin.Handler {
	return test.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m.Id = r.Id
		return dns.RcodeSuccess, w.WriteMsg(m)
	})
}

func record(text string) dns.RR {
	rr, err := dns.NewRR(text)
	if err != nil {
		panic(err)
	}
	return rr
}

func message(question string, qtype uint16, answer ...string) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(question, qtype)
	m.Response = true
	for _, text := range answer {
		if extra, ok := strings.CutPrefix(text, "+"); ok {
			m.Extra = append(m.Extra, record(extra))
		} else {
			m.Answer = append(m.Answer, record(text))
		}
	}
	return m
}

// Answers of other plugins than kubernetes do not change.
func TestForeignMessages(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client string
		m      *dns.Msg
		want   string
	}{
		{
			name: "an alias of another zone", client: onA1,
			m:    message("www.example.org.", dns.TypeA, "www.example.org. 60 IN CNAME "+webName, webName+" 60 IN A 10.1.0.1", webName+" 5 IN A 10.3.0.1"),
			want: "->" + webName + " a1/1",
		},
		{
			name: "an alias of a name that is not near", client: onC1,
			m:    message("www.example.org.", dns.TypeA, "www.example.org. 60 IN CNAME hard.shop.svc.cluster.local.", "hard.shop.svc.cluster.local. 5 IN A 10.1.0.1"),
			want: "->hard.shop.svc.cluster.local. soa",
		},
		{
			name: "a chain", client: onA1,
			m: message("a.example.org.", dns.TypeA, "a.example.org. 60 IN CNAME b.example.org.", "b.example.org. 60 IN CNAME "+webName,
				webName+" 5 IN A 10.3.0.1", webName+" 5 IN A 10.1.0.1"),
			want: "->b.example.org. ->" + webName + " a1/1",
		},
		{
			name: "SRV without additional records", client: onA1,
			m:    message(portName, dns.TypeSRV, portName+" 5 IN SRV 0 50 80 db-0."+webName, portName+" 5 IN SRV 0 50 80 10-3-0-1."+webName),
			want: "db-0",
		},
		{
			name: "SRV with targets without a known address", client: onA1,
			m:    message(portName, dns.TypeSRV, portName+" 5 IN SRV 0 50 80 gone."+webName, portName+" 5 IN SRV 0 50 80 10-3-0-1."+webName, portName+" 5 IN SRV 0 50 80 db-0."+webName),
			want: "db-0 gone",
		},
		{
			name: "SRV with targets without a known address, hard", client: onA1,
			m: message("_http._tcp.hard.shop.svc.cluster.local.", dns.TypeSRV, "_http._tcp.hard.shop.svc.cluster.local. 5 IN SRV 0 50 80 gone.hard.shop.svc.cluster.local.",
				"_http._tcp.hard.shop.svc.cluster.local. 5 IN SRV 0 50 80 10-1-0-1.hard.shop.svc.cluster.local."),
			want: "10-1-0-1",
		},
		{
			name: "SRV with nothing but such targets, hard", client: onA1,
			m:    message("_http._tcp.hard.shop.svc.cluster.local.", dns.TypeSRV, "_http._tcp.hard.shop.svc.cluster.local. 5 IN SRV 0 50 80 gone.hard.shop.svc.cluster.local."),
			want: "soa",
		},
		{
			name: "SRV of another zone to the Service", client: onA1,
			m: message("_x._tcp.example.org.", dns.TypeSRV, "_x._tcp.example.org. 5 IN SRV 0 50 80 "+webName,
				"+"+webName+" 5 IN A 10.1.0.1", "+"+webName+" 5 IN A 10.3.0.1"),
			want: "web +a1/1",
		},
		{
			name: "signatures of incomplete records", client: onA1,
			m: message(webName, dns.TypeA, webName+" 5 IN A 10.1.0.1", webName+" 5 IN A 10.3.0.1",
				webName+" 5 IN RRSIG A 13 5 5 20300101000000 20200101000000 1 cluster.local. AAAA"),
			want: "a1/1",
		},
		{
			name: "an address that is in no group and no slice", client: onA1,
			m: message(webName, dns.TypeA, webName+" 5 IN A 10.1.0.1", webName+" 5 IN A 10.99.0.1"), want: "a1/1",
		},
		{name: "nothing", client: onA1, m: message(webName, dns.TypeA), want: ""},
		{name: "a name that is longer than names of Services", client: onA1, m: message(webName, dns.TypeA, strings.Repeat(strings.Repeat("x", 63)+".", 3)+"svc.cluster.local. 5 IN A 10.3.0.1"), want: "b1/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.headless("web", zone+",*", "db-0=1@a1 1@b1")
			w.headless("hard", zone, "1@a1 1@b1")
			w.Next = canned(tt.m)
			m := new(dns.Msg)
			m.SetQuestion(tt.m.Question[0].Name, tt.m.Question[0].Qtype)
			tt.m.Id = m.Id
			before := tt.m.String()
			if got := brief(ask(t, w, tt.client, m)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if after := tt.m.String(); after != before {
				t.Errorf("the message was\n%s\nand is\n%s", before, after)
			}
		})
	}
}

// A cache below may have the endpoints from before a pod was replaced. With hard keys, the client must not appear to
// have none.
func TestCachedBelow(t *testing.T) {
	for _, tt := range []struct {
		name string
		m    *dns.Msg
		want string
	}{
		{"replaced", message(webName, dns.TypeA, webName+" 30 IN A 10.1.0.9", webName+" 30 IN A 10.3.0.1"), "a1/1 a1/2"},
		{"added", message(webName, dns.TypeA, webName+" 30 IN A 10.3.0.1"), "a1/1 a1/2"},
		{"all are gone", message(webName, dns.TypeA, webName+" 30 IN A 10.3.0.9", webName+" 30 IN RRSIG A 13 5 5 20300101000000 20200101000000 1 cluster.local. AAAA"), "a1/1 a1/2"},
		{"IPv6", message(webName, dns.TypeAAAA, webName+" 30 IN AAAA fd03::1"), "a1/1 a1/2"},
		{"some are left", message(webName, dns.TypeA, webName+" 30 IN A 10.1.0.1", webName+" 30 IN A 10.3.0.1"), "a1/1"},
		{"of a port, which endpoints may not have", message(portName, dns.TypeA, portName+" 30 IN A 10.3.0.1"), "soa"},
		{"without any near", message("far.shop.svc.cluster.local.", dns.TypeA, "far.shop.svc.cluster.local. 30 IN A 10.9.0.9"), "soa"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.headless("web", zone, "1@a1 2@a1+ 1@b1", names.V4, names.V6)
			w.headless("far", zone, "1@b1")
			unready := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "more", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
			unready.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.3"}, NodeName: ptr.To("a1"), Zone: ptr.To("a"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}
			w.cluster.setSlice(unready)
			w.Next = canned(tt.m)
			got := w.ask(onA1, tt.m.Question[0].Name, tt.m.Question[0].Qtype)
			if brief(got) != tt.want {
				t.Errorf("got %q, want %q", brief(got), tt.want)
			}
			for _, rr := range got.Answer {
				if rr.Header().Ttl > defaultTTL {
					t.Errorf("the TTL is above the bound: %v", rr)
				}
			}
		})
	}
}

// After a pod was replaced, the first answer has the new pod and not the old one.
func TestReplacedPod(t *testing.T) {
	w := newWorld(t)
	w.headless("web", zone, "1@a1 5@b1")
	for _, pods := range []string{"1@a1 5@b1", "2@a1 5@b1", "3@a1 5@b1"} {
		w.headless("web", zone, pods)
		if got, want := brief(w.ask(onA1, webName, dns.TypeA)), "a1/"+pods[:1]; got != want {
			t.Errorf("the answer about %s is %q, want %q", pods, got, want)
		}
	}
}

// Groups of a former headless Service do not affect its successor with a cluster IP.
func TestNoLongerHeadless(t *testing.T) {
	w := newWorld(t, "plan")
	w.headless("web", zone, "1@a1 1@b1")
	w.cluster.deleteSlice("shop", "web", "web0")
	if got := brief(w.ask(onA1, webName, dns.TypeA)); got != "a1/1" {
		t.Errorf("endpoints without slices: got %q", got)
	}
	delete(w.endpoints, "web")
	w.service(&object.Service{Name: "web", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}})
	for _, tt := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		{webName, dns.TypeA, "10.96.0.1"},
		{portName, dns.TypeSRV, "web +10.96.0.1"},
		{"a.prefer._zone." + webName, dns.TypeA, "NXDOMAIN soa"},
	} {
		if got := brief(w.ask(onA1, tt.name, tt.qtype)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The TTL of filtered records, and of answers without records, is bounded.
func TestTTL(t *testing.T) {
	w := newWorld(t, "ttl 3")
	w.headless("web", zone, "1@a1 1@b1")
	m := message(webName, dns.TypeA, webName+" 30 IN A 10.1.0.1", webName+" 2 IN A 10.3.0.1")
	w.Next = canned(m)
	for client, want := range map[string]uint32{onA1: 3, "10.3.0.9": 2} {
		if got := w.ask(client, webName, dns.TypeA).Answer[0].Header().Ttl; got != want {
			t.Errorf("client %s: TTL %d, want %d", client, got, want)
		}
	}
	soa := w.ask(onC1, webName, dns.TypeA).Ns[0].(*dns.SOA)
	if soa.Hdr.Ttl != 3 || soa.Minttl != 3 || soa.Hdr.Name != "cluster.local." || soa.Ns != "ns.dns.cluster.local." || soa.Mbox != "hostmaster.cluster.local." || soa.Serial == 0 {
		t.Errorf("got %v", soa)
	}
}

// The client subnet counts only from an address in the Corefile, and only if it is a single address.
func TestClientSubnet(t *testing.T) {
	const resolver = "10.4.0.53"
	for _, tt := range []struct {
		name    string
		lines   []string
		client  string
		address string
		bits    uint8
		want    string
		scope   int // -1 if the answer has no subnet
	}{
		{"off", nil, resolver, "10.1.0.7", 32, "soa", -1},
		{"from another", []string{"client_subnet 10.4.0.54"}, resolver, "10.1.0.7", 32, "soa", -1},
		{"from this one", []string{"client_subnet 10.4.0.54 " + resolver}, resolver, "10.1.0.7", 32, "a1/1", 32},
		{"from its range", []string{"client_subnet 10.4.0.0/16"}, resolver, "10.1.0.7", 32, "a1/1", 32},
		{"IPv6", []string{"client_subnet 10.4.0.0/16"}, resolver, "fd01::7", 128, "a1/1", 128},
		{"a part of an address", []string{"client_subnet " + resolver}, resolver, "10.1.0.0", 24, "soa", -1},
		{"of one that is not known", []string{"client_subnet " + resolver}, resolver, elsewhere, 32, "soa", 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.lines...)
			w.headless("web", zone, "1@a1 1@b1")
			m := w.ask(tt.client, webName, dns.TypeA, func(m *dns.Msg) {
				m.SetEdns0(1232, false)
				subnet := &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: tt.bits, Address: net.ParseIP(tt.address)}
				if tt.bits == 128 {
					subnet.Family = 2
				}
				m.IsEdns0().Option = append(m.IsEdns0().Option, subnet)
			})
			if got := brief(m); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			scope := -1
			if subnet := clientSubnet(m); subnet != nil {
				scope = int(subnet.SourceScope)
			}
			if scope != tt.scope {
				t.Errorf("the scope is %d, want %d", scope, tt.scope)
			}
		})
	}
}

// A PodLocator wins over ranges of nodes. Malformed parts of it are ignored.
func TestLocators(t *testing.T) {
	w := newWorld(t)
	w.headless("web", zone, "1@a1 1@b1")
	locator := func(name, node string, created int64, ips ...string) *v1alpha1.PodLocator {
		l := &v1alpha1.PodLocator{IPs: ips, NodeName: node, NodeLabels: map[string]string{zone: node[:1]}}
		l.Namespace, l.Name, l.CreationTimestamp = "shop", name, metav1.Unix(created, 0)
		return l
	}
	ask := func(client, want string) {
		t.Helper()
		if got := brief(w.ask(client, webName, dns.TypeA)); got != want {
			t.Errorf("%s: got %q, want %q", client, got, want)
		}
	}
	ask("172.16.0.1", "soa")
	w.cluster.setLocator(locator("p", "a1", 1, "172.16.0.1", "fd99::1", "none", "", "10.0.0.0/8"))
	ask("172.16.0.1", "a1/1")
	ask("fd99::1", "a1/1")
	ask("10.77.0.1", "soa")
	// A pod of another network than its node's ranges.
	w.cluster.setLocator(locator("q", "b1", 1, "10.1.0.50"))
	ask("10.1.0.50", "b1/1")
	// Two pods with one address: the newer counts, until it goes.
	w.cluster.setLocator(locator("r", "b1", 2, "172.16.0.1"))
	ask("172.16.0.1", "b1/1")
	// One that is deleted and has a finalizer does not count.
	leaving := locator("r", "b1", 2, "172.16.0.1")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	w.cluster.setLocator(leaving)
	ask("172.16.0.1", "a1/1")
	w.cluster.clients.DeletePod("shop", "r")
	ask("172.16.0.1", "a1/1")
	w.cluster.clients.DeletePod("shop", "p")
	ask("172.16.0.1", "soa")
}

// An answer with 1,000 endpoints is truncated for the client, and complete over TCP. The filtered answer for a client
// near few of them fits.
func TestLargeAnswers(t *testing.T) {
	w := newWorld(t)
	var endpoints []string
	for i := range 1000 {
		endpoints = append(endpoints, fmt.Sprintf("%d@b1", i+1))
	}
	w.headless("web", zone+",*", strings.Join(endpoints, " ")+" 1@a1")
	for _, tt := range []struct {
		client    string
		tcp       bool
		size      uint16
		records   int // -1 for some
		truncated bool
	}{
		{"10.3.0.9", true, 0, 1000, false},
		{"10.3.0.9", false, 0, -1, true},
		{"10.3.0.9", false, 1232, -1, true},
		{onA1, false, 0, 1, false},
	} {
		m := new(dns.Msg)
		m.SetQuestion(webName, dns.TypeA)
		if tt.size > 0 {
			m.SetEdns0(tt.size, false)
		}
		var got *dns.Msg
		client := &test.ResponseWriter{RemoteIP: tt.client, TCP: tt.tcp}
		// The server fits answers to clients before they leave.
		if _, err := w.ServeDNS(context.Background(), request.NewScrubWriter(m, &recorder{client, &got}), m); err != nil {
			t.Fatal(err)
		}
		packed, err := got.Pack()
		if err != nil {
			t.Fatal(err)
		}
		limit := max(int(tt.size), dns.MinMsgSize)
		if got.Truncated != tt.truncated || tt.records >= 0 && len(got.Answer) != tt.records || !tt.tcp && len(packed) > limit {
			t.Errorf("%+v: %d records in %d bytes, truncated is %t", tt, len(got.Answer), len(packed), got.Truncated)
		}
	}
}

type recorder struct {
	dns.ResponseWriter
	got **dns.Msg
}

func (r *recorder) WriteMsg(m *dns.Msg) error {
	*r.got = m
	return nil
}

// Plugins below that look up further names, as for an alias, get whole answers, which they may cache for all clients.
func TestInnerLookupsStayWhole(t *testing.T) {
	w := newWorld(t)
	w.headless("web", zone, "1@a1 1@b1")
	backend := w.Next
	within := ""
	w.Next = test.HandlerFunc(func(ctx context.Context, rw dns.ResponseWriter, r *dns.Msg) (int, error) {
		w.Next = backend
		var got *dns.Msg
		if code, err := w.ServeDNS(ctx, &recorder{rw, &got}, r); err != nil {
			return code, err
		}
		within = brief(got)
		return dns.RcodeSuccess, rw.WriteMsg(got)
	})
	if got := brief(w.ask(onA1, webName, dns.TypeA)); got != "a1/1" || within != "a1/1 b1/1" {
		t.Errorf("the client gets %q, the plugin within %q", got, within)
	}
}

// Before all resources are listed, answers that depend on them fail, and others do not.
func TestUnsynced(t *testing.T) {
	w := newWorld(t)
	w.headless("web", zone, "1@a1 1@b1")
	w.cluster.unlisted.Store(1)
	if w.Ready() {
		t.Error("it is ready")
	}
	for name, want := range map[string]string{webName: "SERVFAIL", "10-1-0-1." + webName: "a1/1", "no.shop.svc.cluster.local.": "NXDOMAIN soa"} {
		if got := brief(w.ask(onA1, name, dns.TypeA)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	w.cluster.unlisted.Store(0)
	if got := brief(w.ask(onA1, webName, dns.TypeA)); got != "a1/1" || !w.Ready() {
		t.Errorf("got %q", got)
	}
}

// With plan, names that prefer a zone fail too, for all Services.
func TestUnsyncedPlan(t *testing.T) {
	w := newWorld(t, "plan")
	w.headless("web", zone, "1@a1 1@b1")
	group := w.cluster.parts["web.shop"].groups["web0"]
	w.cluster.deleteGroup("shop", "web", "web0")
	w.cluster.unlisted.Store(1)
	const prefer = "b.Prefer._zone."
	for name, want := range map[string]string{prefer + webName: "SERVFAIL", prefer + "no.shop.svc.cluster.local.": "SERVFAIL", "b.pin._zone." + webName: "b1/1"} {
		m := w.ask(onA1, name, dns.TypeA)
		if got := brief(m); got != want || m.Question[0].Name != name {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	w.cluster.setGroup(group)
	w.cluster.unlisted.Add(-1)
	if got := brief(w.ask(onA1, prefer+webName, dns.TypeA)); got != "b1/1" {
		t.Errorf("got %q", got)
	}
}

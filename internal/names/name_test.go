package names

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	zones := []string{"cluster.local.", "other.test."}
	for _, tt := range []struct {
		name                               string
		service, prefix, preferred, pinned string
		isService, isPort, isOutside       bool
	}{
		{name: "web.shop.svc.cluster.local.", service: "web.shop", isService: true},
		{name: "Web.Shop.SVC.Other.Test.", service: "Web.Shop", isService: true},
		{name: "_http._tcp.web.shop.svc.cluster.local.", service: "web.shop", prefix: "_http._tcp", isService: true, isPort: true},
		{name: "db-0.web.shop.svc.cluster.local.", service: "web.shop", prefix: "db-0"},
		{name: "a.b.c.web.shop.svc.cluster.local.", service: "web.shop", prefix: "a.b.c"},
		{name: "A.eu.Prefer._zone.web.shop.svc.cluster.local.", service: "web.shop", prefix: "A.eu.Prefer._zone", preferred: "a.eu"},
		{name: "a.pin._zone.web.shop.svc.cluster.local.", service: "web.shop", prefix: "a.pin._zone", pinned: "a"},
		{name: "prefer._zone.web.shop.svc.cluster.local.", service: "web.shop", prefix: "prefer._zone", isService: true, isPort: true},
		{name: "shop.svc.cluster.local.", isOutside: true},
		{name: ".shop.svc.cluster.local.", isOutside: true},
		{name: "svc.cluster.local.", isOutside: true},
		{name: "1-2-3-4.shop.pod.cluster.local.", isOutside: true},
		{name: `a\.b.shop.svc.cluster.local.`, isOutside: true},
		{name: "web.shop.svc.elsewhere.", isOutside: true},
		{name: "", isOutside: true},
	} {
		n, ok := Parse(tt.name, zones)
		if ok == tt.isOutside || n.Service != tt.service || n.Prefix != tt.prefix || ok && (n.IsService() != tt.isService || n.IsPort() != tt.isPort) {
			t.Errorf("%s: %+v, %t", tt.name, n, ok)
		}
		if ok && !strings.HasSuffix(tt.name, n.Service+".svc."+n.Zone) && !strings.Contains(tt.name, "SVC") {
			t.Errorf("%s: %+v", tt.name, n)
		}
		if zone, _ := n.Preferred(); zone != tt.preferred {
			t.Errorf("%s prefers %q", tt.name, zone)
		}
		if zone, _ := n.Pinned(); zone != tt.pinned {
			t.Errorf("%s is pinned to %q", tt.name, zone)
		}
	}
}

// The parts of a parsed name make up the name, and only the prefix may be empty.
func FuzzParse(f *testing.F) {
	for _, name := range []string{
		"web.shop.svc.cluster.local.", "WEB.shop.SVC.Cluster.Local.", "_http._tcp.web.shop.svc.cluster.local.", "a.prefer._zone.web.shop.svc.cluster.local.",
		"10-1-0-1.web.shop.svc.cluster.local.", ".shop.svc.cluster.local.", "web..svc.cluster.local.", `a\.b.shop.svc.cluster.local.`, "svc.cluster.local.", ".svc.cluster.local.", "",
		"web.shop.svc.cluster.local.svc.cluster.local.", "\x00.\xff.svc.cluster.local.",
	} {
		f.Add(name)
	}
	zones := []string{"cluster.local.", "example.org."}
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := Parse(name, zones)
		if !ok {
			if n != (Name{}) {
				t.Fatalf("got %+v for an invalid name", n)
			}
			return
		}
		whole := n.Service + name[len(name)-len(n.Zone)-len(".svc."):]
		if n.Prefix != "" {
			whole = n.Prefix + "." + whole
		}
		if whole != name && "."+whole != name {
			t.Fatalf("%+v is %q", n, whole)
		}
		namespace, service := n.ServiceName()
		if !strings.EqualFold(service+"."+namespace, n.Service) || strings.Contains(namespace, ".") || strings.Contains(service, ".") {
			t.Fatalf("%q is Service %q of %q", n.Service, service, namespace)
		}
		if n.IsService() && strings.Count(n.Prefix, ".") > 1 {
			t.Fatalf("%+v is a Service", n)
		}
		for _, of := range []func() (string, bool){n.Preferred, n.Pinned} {
			if zone, ok := of(); ok && (zone == "" || n.IsService() && n.Prefix == "") {
				t.Fatalf("%+v is in zone %q", n, zone)
			}
		}
	})
}

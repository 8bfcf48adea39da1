package names

import (
	"strings"
	"testing"
)

// FuzzParse reads the names that clients ask for: what is read is the name in parts, none of them empty but the prefix.
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
				t.Fatalf("%+v of a name that is none", n)
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
				t.Fatalf("%+v has the zone %q", n, zone)
			}
		}
	})
}

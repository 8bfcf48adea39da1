// Package names parses names in a zone of the cluster, and decides which endpoints of a headless Service a client gets for
// them. The DNS server and vicinity explain dns both use it, so that they agree.
//
// It knows neither messages nor records. These belong to the DNS server.
package names

import "strings"

// Name has the parts of a name of the form [prefix.]service.namespace.svc.zone, as written.
type Name struct {
	// Zone is the zone of the cluster.
	Zone string
	// Service is "name.namespace".
	Service string
	// Prefix precedes Service, without the dot in between.
	Prefix string
}

// Parse reads a name in one of some zones. The zones end with a dot.
func Parse(name string, zones []string) (Name, bool) {
	const svc = ".svc."
	for _, zone := range zones {
		at := len(name) - len(zone)
		if at < len(svc)+len("a.b") || !strings.EqualFold(name[at:], zone) || !strings.EqualFold(name[at-len(svc):at], svc) {
			continue
		}
		rest := name[:at-len(svc)]
		dot := strings.LastIndexByte(rest, '.')
		if dot <= 0 || strings.IndexByte(rest, '\\') >= 0 {
			return Name{}, false
		}
		n := Name{Zone: name[at:], Service: rest}
		if before := strings.LastIndexByte(rest[:dot], '.'); before >= 0 {
			n.Prefix, n.Service = rest[:before], rest[before+1:]
		}
		return n, true
	}
	return Name{}, false
}

// IsService reports whether the name has records of all endpoints: it names the Service, or with a prefix of two labels one of
// its ports. A prefix of one label names an endpoint.
func (n Name) IsService() bool { return n.Prefix == "" || n.IsPort() }

// IsPort reports whether the name names a port, which some endpoints may lack.
func (n Name) IsPort() bool { return strings.Count(n.Prefix, ".") == 1 }

// Preferred returns the zone of nodes that a name prefers, in lower case. The plugin kubernetes has such names:
// ZONE.prefer._zone.service...
func (n Name) Preferred() (zone string, ok bool) { return n.zonal(".prefer._zone") }

// Pinned returns the zone of nodes that a name is limited to, in lower case: ZONE.pin._zone.service...
func (n Name) Pinned() (zone string, ok bool) { return n.zonal(".pin._zone") }

func (n Name) zonal(suffix string) (zone string, ok bool) {
	at := len(n.Prefix) - len(suffix)
	if at <= 0 || !strings.EqualFold(n.Prefix[at:], suffix) {
		return "", false
	}
	return strings.ToLower(n.Prefix[:at]), true
}

// Label returns the first label of a name, in lower case.
func Label(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return strings.ToLower(label)
}

// Same compares names like DNS, without regard to case.
func Same(a, b string) bool { return a == b || strings.EqualFold(a, b) }

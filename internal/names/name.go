// Package names says what a name in a zone of the cluster stands for, and which endpoints of a
// headless Service a client gets for it. The DNS server answers by it, and vicinity explain dns
// tells of it, so that the two agree.
//
// It knows neither messages nor records: the server has those, and what CoreDNS' plugin
// kubernetes answers is the server's too.
package names

import "strings"

// Name is what a name of the form [prefix.]service.namespace.svc.zone says.
type Name struct {
	// Zone is that of the cluster, as the name has it.
	Zone string
	// Service is "name.namespace" as the name has it.
	Service string
	// Prefix is what stands before that, without the dot in between.
	Prefix string
}

// Parse reads a name in one of some zones, all of which end with a dot.
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

// IsService reports whether the records of the name are those of all endpoints: of the
// Service, or of one of its ports, which two labels name. One label is that of an endpoint.
func (n Name) IsService() bool { return n.Prefix == "" || n.IsPort() }

// IsPort reports whether the name is that of a port, which some endpoints may not have.
func (n Name) IsPort() bool { return strings.Count(n.Prefix, ".") == 1 }

// Preferred is the zone of nodes that a name prefers, in lower case. Such names are those of the
// plugin kubernetes: ZONE.prefer._zone.service...
func (n Name) Preferred() (zone string, ok bool) { return n.zonal(".prefer._zone") }

// Pinned is the zone of nodes that a name is confined to, in lower case: ZONE.pin._zone.service...
func (n Name) Pinned() (zone string, ok bool) { return n.zonal(".pin._zone") }

func (n Name) zonal(suffix string) (zone string, ok bool) {
	at := len(n.Prefix) - len(suffix)
	if at <= 0 || !strings.EqualFold(n.Prefix[at:], suffix) {
		return "", false
	}
	return strings.ToLower(n.Prefix[:at]), true
}

// Label is the first label of a name in lower case, as that of an endpoint.
func Label(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return strings.ToLower(label)
}

// Same compares names as DNS does.
func Same(a, b string) bool { return a == b || strings.EqualFold(a, b) }

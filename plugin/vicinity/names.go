package vicinity

import (
	"strings"

	"github.com/miekg/dns"
)

// owner is what a name in a zone of the cluster says.
type owner struct {
	// zone is that of the cluster, as the name has it.
	zone string
	// service is "name.namespace" as the name has it.
	service string
	// prefix is what stands before that, without the dot in between.
	prefix string
}

// parse reads a name of the form [prefix.]service.namespace.svc.zone.
func (v *Vicinity) parse(name string) (owner, bool) {
	const svc = ".svc."
	for _, zone := range v.zones {
		at := len(name) - len(zone)
		if at < len(svc)+len("a.b") || !strings.EqualFold(name[at:], zone) || !strings.EqualFold(name[at-len(svc):at], svc) {
			continue
		}
		rest := name[:at-len(svc)]
		dot := strings.LastIndexByte(rest, '.')
		if dot <= 0 || strings.IndexByte(rest, '\\') >= 0 {
			return owner{}, false
		}
		o := owner{zone: name[at:], service: rest}
		if before := strings.LastIndexByte(rest[:dot], '.'); before >= 0 {
			o.prefix, o.service = rest[:before], rest[before+1:]
		}
		return o, true
	}
	return owner{}, false
}

// isService reports whether the records of the name are those of all endpoints: of the
// Service, or of one of its ports, which two labels name. One label is that of an endpoint.
func (o owner) isService() bool {
	return o.prefix == "" || strings.Count(o.prefix, ".") == 1
}

// The names of the plugin kubernetes for a zone of nodes: ZONE.prefer._zone.service...
const preferSuffix = ".prefer._zone"

// preferred reads a name that prefers a zone: the zone in lower case, and the owner of the name.
func (v *Vicinity) preferred(name string) (zone string, o owner, ok bool) {
	o, ok = v.parse(name)
	at := len(o.prefix) - len(preferSuffix)
	if !ok || at <= 0 || !strings.EqualFold(o.prefix[at:], preferSuffix) {
		return "", owner{}, false
	}
	return strings.ToLower(o.prefix[:at]), o, true
}

// firstLabel is the label of an endpoint in its name.
func firstLabel(target string) string {
	label, _, _ := strings.Cut(target, ".")
	return strings.ToLower(label)
}

// sameName compares names as DNS does.
func sameName(a, b string) bool { return a == b || strings.EqualFold(a, b) }

// ownerOf is the name that a record belongs to.
func ownerOf(rr dns.RR) string { return rr.Header().Name }

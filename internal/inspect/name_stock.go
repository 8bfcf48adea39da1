package inspect

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/names"
	"vicinity.dev/vicinity/internal/translate"
)

// stockName answers a name of a Service as CoreDNS' plugin kubernetes does, whoever asks.
type stockName struct {
	*nameView
	// What the name says beside the Service. Port and protocol go together.
	endpoint, port, protocol string
	// zone is that of a name for a zone, and prefers says that others do where it has no endpoint.
	zone    string
	prefers bool
	// exists says that the name does, also without a record.
	exists bool
	// impossible says that no name of a Service is of the form.
	impossible bool
}

func (v *nameView) stock() stockName {
	s := stockName{nameView: v}
	prefix := strings.ToLower(v.name.Prefix)
	labels := strings.Split(prefix, ".")
	switch {
	case prefix == "":
	case len(labels) == 1:
		s.endpoint = prefix
	case len(labels) == 2:
		s.port, s.protocol = strings.TrimPrefix(labels[0], "_"), strings.TrimPrefix(labels[1], "_")
	default:
		var pinned bool
		if s.zone, pinned = v.name.Pinned(); !pinned {
			s.zone, s.prefers = v.name.Preferred()
		}
		s.impossible = s.zone == ""
	}
	return s
}

// stockEndpoint is an endpoint at a port, which is -1 where a Service has no ports.
type stockEndpoint struct {
	names.Endpoint
	label string
	port  int32
}

func (s *stockName) matches(port, protocol string) bool {
	return (s.port == "" || strings.EqualFold(s.port, port)) && (s.protocol == "" || strings.EqualFold(s.protocol, protocol))
}

// endpoints are those that the name is of, in the order of addresses and ports.
func (s *stockName) endpoints() []stockEndpoint {
	all := s.endpointsIn(s.zone)
	if len(all) == 0 && s.prefers {
		all = s.endpointsIn("")
	}
	slices.SortStableFunc(all, func(a, b stockEndpoint) int { return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.port, b.port)) })
	return all
}

func (s *stockName) endpointsIn(zone string) []stockEndpoint {
	var all []stockEndpoint
	for _, slice := range s.in.Service.Slices {
		given, _ := names.EndpointsOf(slice)
		for i := range given {
			e := stockEndpoint{Endpoint: given[i], label: given[i].Host, port: -1}
			if e.label == "" {
				e.label = names.Dashed(e.IP)
			}
			if e.NotReady || zone != "" && !strings.EqualFold(e.Zone, zone) || s.endpoint != "" && !strings.EqualFold(e.label, s.endpoint) {
				continue
			}
			if len(slice.Ports) == 0 && s.matches("", "") {
				all = append(all, e)
			}
			for _, port := range slice.Ports {
				e.port = -1
				if port.Port != nil {
					e.port = *port.Port
				}
				if s.matches(valueOf(port.Name), string(valueOf(port.Protocol))) {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// answer is what there is of a type.
func (s *stockName) answer(kind string) NameAnswer {
	service := s.in.Service.Service
	a := NameAnswer{Type: kind, Records: []NameRecord{}}
	found := false
	switch {
	case s.impossible, s.zone != "" && !translate.IsHeadless(service):
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		found = s.name.Prefix == "" && !isAddress(service.Spec.ExternalName)
		s.alias(&a, found)
	case translate.IsHeadless(service) || s.endpoint != "":
		endpoints := s.endpoints()
		found = len(endpoints) > 0 || s.exists || s.zone != "" || s.nameAsEndpoint() != ""
		for i := range endpoints {
			s.add(&a, &endpoints[i])
		}
	default:
		found = s.clusterIPs(&a)
	}
	a.Of = len(a.Records)
	switch {
	case a.Of > 0:
		a.Result = ResultRecords
	case found:
		a.Result = ResultEmpty
	default:
		a.Result = ResultNoName
	}
	a.Why = s.why(&a)
	s.leaveNames(&a)
	return a
}

// alias has the record of an external name, which the answers with addresses begin with. CoreDNS has no SRV
// records of external names.
func (s *stockName) alias(a *NameAnswer, found bool) {
	if !found || a.Type == TypeSRV {
		return
	}
	target := strings.TrimSuffix(s.in.Service.Service.Spec.ExternalName, ".") + "."
	a.Records = append(a.Records, NameRecord{Name: s.in.Name, Type: typeCNAME, Target: target})
}

// isAddress reports whether CoreDNS takes an external name for an address, of which it makes no alias.
func isAddress(externalName string) bool {
	_, err := netip.ParseAddr(externalName)
	return err == nil
}

// nameAsEndpoint is a name that a ready endpoint has instead of an address (addressType FQDN), empty without
// one. CoreDNS answers with an alias of it.
func (s *stockName) nameAsEndpoint() string {
	for _, slice := range s.in.Service.Slices {
		hasPort := len(slice.Ports) == 0 && s.matches("", "") || slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool {
			return s.matches(valueOf(p.Name), string(valueOf(p.Protocol)))
		})
		if slice.AddressType != discoveryv1.AddressTypeFQDN || !hasPort {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || !endpoint.StateOf(e).IsReady() {
				continue
			}
			label := cmp.Or(valueOf(e.Hostname), strings.ReplaceAll(e.Addresses[0], ".", "-"))
			if s.endpoint == "" || strings.EqualFold(label, s.endpoint) {
				return e.Addresses[0]
			}
		}
	}
	return ""
}

func valueOf[T any](given *T) (value T) {
	if given != nil {
		value = *given
	}
	return value
}

// leaveNames says that what names lead to is not shown, where endpoints are names.
func (s *stockName) leaveNames(a *NameAnswer) {
	service := s.in.Service.Service
	if s.impossible || a.Type == TypeSRV || service.Spec.Type == corev1.ServiceTypeExternalName || !translate.IsHeadless(service) && s.endpoint == "" {
		return
	}
	name := s.nameAsEndpoint()
	if name == "" {
		return
	}
	if a.Of == 0 {
		a.Result, a.Why = ResultUnknown, "the endpoints are names"
	}
	s.e.NotKnown = appendNew(s.e.NotKnown, []string{fmt.Sprintf("what the server gives of endpoints that are names, such as %s (addressType FQDN): it answers with aliases of them, which are not shown", name)})
}

// add puts the records of an endpoint into an answer, each once.
func (s *stockName) add(a *NameAnswer, e *stockEndpoint) {
	if a.Type != TypeSRV {
		if a.Type == addressType(e.IP) {
			a.Records = addRecord(a.Records, NameRecord{Name: s.in.Name, Type: a.Type, Address: e.IP.String(), Zone: e.Zone, Node: e.Node})
		}
		return
	}
	if e.port < 0 {
		return
	}
	target := e.label + "." + s.name.Service + ".svc." + s.name.Zone
	a.Records = addRecord(a.Records, NameRecord{Name: s.in.Name, Type: TypeSRV, Target: target, Port: new(e.port), Zone: e.Zone, Node: e.Node})
	a.Additional = addRecord(a.Additional, NameRecord{Name: target, Type: addressType(e.IP), Address: e.IP.String(), Zone: e.Zone, Node: e.Node})
}

// clusterIPs has those of the Service. It reports whether the name is of one of its ports.
func (s *stockName) clusterIPs(a *NameAnswer) (found bool) {
	service := s.in.Service.Service
	addresses := service.Spec.ClusterIPs
	if len(addresses) == 0 && service.Spec.ClusterIP != "" {
		addresses = []string{service.Spec.ClusterIP}
	}
	ports := service.Spec.Ports
	if len(ports) == 0 {
		ports = []corev1.ServicePort{{Port: -1}}
	}
	for _, port := range ports {
		if !s.matches(port.Name, string(port.Protocol)) {
			continue
		}
		found = true
		for _, text := range addresses {
			address, err := netip.ParseAddr(text)
			switch {
			case err != nil:
			case a.Type == TypeSRV && port.Port < 0:
			case a.Type == TypeSRV:
				target := s.name.Service + ".svc." + s.name.Zone
				a.Records = addRecord(a.Records, NameRecord{Name: s.in.Name, Type: TypeSRV, Target: target, Port: new(port.Port)})
				a.Additional = addRecord(a.Additional, NameRecord{Name: target, Type: addressType(address), Address: text})
			case a.Type == addressType(address):
				a.Records = addRecord(a.Records, NameRecord{Name: s.in.Name, Type: a.Type, Address: text})
			}
		}
	}
	return found
}

func addressType(address netip.Addr) string {
	if names.FamilyOf(address) == names.V4 {
		return TypeA
	}
	return TypeAAAA
}

// addRecord adds a record unless there is the same one.
func addRecord(all []NameRecord, r NameRecord) []NameRecord {
	same := func(o NameRecord) bool {
		return o.Name == r.Name && o.Address == r.Address && o.Target == r.Target && valueOf(o.Port) == valueOf(r.Port)
	}
	if slices.ContainsFunc(all, same) {
		return all
	}
	return append(all, r)
}

package groups

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/translate"
)

type part struct {
	ports     []v1alpha1.GroupPort
	key       string
	endpoints []*sliceEndpoint
	byAddress map[string]*sliceEndpoint
}

// partsOf reads the slices of a family. Parts are in the order of their keys; notes name
// ports that groups cannot have.
func partsOf(in *Input, family corev1.IPFamily) (list []*part, notes []string) {
	parts := map[string]*part{}
	for _, slice := range endpoint.Slices(in.Slices, family) {
		if len(slice.Endpoints) == 0 {
			continue
		}
		ports, unnumbered := groupPorts(slice.Ports)
		for _, name := range unnumbered {
			notes = append(notes, fmt.Sprintf("port %q of slice %s has no number and is left out of the groups", name, slice.Name))
		}
		key := portsKey(ports)
		if parts[key] == nil {
			parts[key] = &part{ports: ports, key: key, byAddress: make(map[string]*sliceEndpoint, len(slice.Endpoints))}
			list = append(list, parts[key])
		}
		parts[key].add(slice, in.Cluster)
	}
	slices.SortFunc(list, func(a, b *part) int { return cmp.Compare(a.key, b.key) })
	return list, notes
}

// add adds the endpoints of a slice, of each address the one that counts.
func (t *part) add(slice *discoveryv1.EndpointSlice, cluster *translate.Cluster) {
	list := make([]sliceEndpoint, len(slice.Endpoints))
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		read := endpoint.Read(e)
		read.Zone = cluster.ZoneOf(e)
		switch known := t.byAddress[read.Address]; {
		case known == nil:
			list[i].GroupEndpoint = read
			t.byAddress[read.Address] = &list[i]
			t.endpoints = append(t.endpoints, &list[i])
		case endpoint.StateInGroup(&read).Before(endpoint.StateInGroup(&known.GroupEndpoint)):
			known.GroupEndpoint = read
		}
	}
}

// groupPorts are the ports of a slice in the order of names. Ports without a number,
// which stand for all, are named.
func groupPorts(ports []discoveryv1.EndpointPort) (list []v1alpha1.GroupPort, unnumbered []string) {
	for i := range ports {
		port := v1alpha1.GroupPort{Protocol: corev1.ProtocolTCP}
		if ports[i].Name != nil {
			port.Name = *ports[i].Name
		}
		if ports[i].Protocol != nil && *ports[i].Protocol != "" {
			port.Protocol = *ports[i].Protocol
		}
		if ports[i].Port == nil {
			unnumbered = append(unnumbered, port.Name)
			continue
		}
		port.Port = *ports[i].Port
		list = append(list, port)
	}
	slices.SortFunc(list, func(a, b v1alpha1.GroupPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	return list, unnumbered
}

func portsKey(ports []v1alpha1.GroupPort) string {
	var b strings.Builder
	for _, port := range ports {
		b.WriteString(port.Name + "\x00" + string(port.Protocol) + "\x00" + strconv.Itoa(int(port.Port)) + "\x00")
	}
	return b.String()
}

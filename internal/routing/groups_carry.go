package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// part is all endpoints of a family that have the same ports.
type part struct {
	ports     []v1alpha1.GroupPort
	key       string
	endpoints []*carried
	index     map[string]*carried
}

// carried is an endpoint as the slices have it.
type carried struct {
	v1alpha1.GroupEndpoint
	part *part
	// wants is the bucket that the plan has it in. It is nil as long as the endpoint
	// is not ready, because then it stays where it is.
	wants *bucket
	// readIn is the group from which the plan is read back, since when the endpoint is
	// there as far as it came from another, and also are other groups that have it.
	readIn *standing
	since  time.Time
	also   []*standing
	// in is the group that it is to be in from now on. If it came there by this
	// step, arrives is set.
	in      *standing
	arrives bool
}

// carry reads the slices.
func (p *groupPlanner) carry() {
	parts := map[string]*part{}
	eps := ofFamily(p.in.Slices, p.family)
	total := endpointsOf(eps)
	for _, slice := range eps {
		if len(slice.Endpoints) == 0 {
			continue
		}
		ports, unnumbered := groupPorts(slice.Ports)
		for _, name := range unnumbered {
			p.notes = append(p.notes, fmt.Sprintf("port %q of slice %s has no number and is left out of the groups", name, slice.Name))
		}
		key := portsKey(ports)
		if parts[key] == nil {
			parts[key] = &part{ports: ports, key: key, index: make(map[string]*carried, total)}
			p.parts = append(p.parts, parts[key])
		}
		parts[key].take(slice, p)
	}
	slices.SortFunc(p.parts, func(a, b *part) int { return cmp.Compare(a.key, b.key) })
}

// take adds the endpoints of a slice. An endpoint is its first address, as in the
// proxies.
func (t *part) take(slice *discoveryv1.EndpointSlice, p *groupPlanner) {
	list := make([]carried, len(slice.Endpoints))
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		c := &list[i]
		c.GroupEndpoint, c.part = p.groupEndpoint(e), t
		p.anyReady = p.anyReady || !c.NotReady
		if known := t.index[c.Address]; known == nil {
			t.index[c.Address] = c
			t.endpoints = append(t.endpoints, c)
		} else if better(&c.GroupEndpoint, &known.GroupEndpoint) {
			known.GroupEndpoint = c.GroupEndpoint
		}
	}
}

// better reports whether one of two endpoints with the same address tells more about
// who answers there: an address may have been given to another pod already.
func better(a, b *v1alpha1.GroupEndpoint) bool {
	rank := func(e *v1alpha1.GroupEndpoint) int {
		switch {
		case !e.NotReady:
			return 0
		case !e.Terminating:
			return 1
		case !e.NotServing:
			return 2
		}
		return 3
	}
	return rank(a) < rank(b)
}

// groupEndpoint reads an endpoint's conditions as proxies do: what it does not say
// is good.
func (p *groupPlanner) groupEndpoint(e *discoveryv1.Endpoint) v1alpha1.GroupEndpoint {
	g := v1alpha1.GroupEndpoint{
		Address:     e.Addresses[0],
		NotReady:    e.Conditions.Ready != nil && !*e.Conditions.Ready,
		NotServing:  e.Conditions.Serving != nil && !*e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	if e.NodeName != nil {
		g.Node = *e.NodeName
	}
	g.Zone = p.in.Cluster.ZoneOf(e)
	return g
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

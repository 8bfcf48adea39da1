// Package endpoint is the one model of an endpoint. It reads endpoints from EndpointSlices and
// EndpointGroups, decides which of two endpoints with one address counts, and chooses the endpoints
// of groups that a client uses.
//
// # Which of two counts
//
// Two endpoints have one address while the address passes from one pod to another, and while
// Kubernetes moves an endpoint from one slice to another. The controller, the proxy, the DNS server
// and vicinity explain all take the same one:
//
//  1. an endpoint that stays before one that terminates, even if the one that terminates is ready
//     and the other is not: the address belongs to the pod that stays
//  2. an endpoint that is ready before one that is not
//  3. an endpoint that serves before one that does not
//  4. the endpoint in the first slice or group by name
//  5. the first endpoint in the slice or group
//
// State decides the first three. Readers get the other two by reading Slices in order, and by
// replacing an endpoint only if the State of the new one is Before the State of the old one.
//
// # Which a client uses
//
// A client uses the nearest endpoints of the groups for its zone. vicinity-proxy asks for the node
// that it runs on, the DNS server for each client of a headless Service, and vicinity explain for
// both, so that they agree. This package does not locate clients, and does not know how endpoints
// are used: in rules of a kernel or in records of an answer.
package endpoint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// State has the conditions of an endpoint.
type State uint8

// The parts of a State. A later part outweighs all before it.
const (
	NotServing State = 1 << iota
	NotReady
	Terminating
)

// StateOf reads the conditions of an endpoint in a slice. Missing conditions mean that it is ready, serves and stays.
func StateOf(e *discoveryv1.Endpoint) State {
	c := &e.Conditions
	return stateOf(c.Ready != nil && !*c.Ready, c.Serving != nil && !*c.Serving, c.Terminating != nil && *c.Terminating)
}

// StateInGroup reads the conditions of an endpoint in a group.
func StateInGroup(e *v1alpha1.GroupEndpoint) State {
	return stateOf(e.NotReady, e.NotServing, e.Terminating)
}

func stateOf(notReady, notServing, terminating bool) State {
	var s State
	if notServing {
		s |= NotServing
	}
	if notReady {
		s |= NotReady
	}
	if terminating {
		s |= Terminating
	}
	return s
}

// IsReady reports whether the endpoint gets new connections.
func (s State) IsReady() bool { return s&NotReady == 0 }

// IsServing reports whether the endpoint still answers, even if it terminates.
func (s State) IsServing() bool { return s&NotServing == 0 }

// IsTerminating reports whether the endpoint terminates.
func (s State) IsTerminating() bool { return s&Terminating != 0 }

// Before reports whether an endpoint counts before another one with its address, whatever their slices or groups are.
func (s State) Before(other State) bool { return s < other }

// Read reads an endpoint of a slice in the form of groups, without domains. Its address is the first one, or empty: no
// proxy uses further addresses.
func Read(e *discoveryv1.Endpoint) v1alpha1.GroupEndpoint {
	state := StateOf(e)
	read := v1alpha1.GroupEndpoint{NotReady: !state.IsReady(), NotServing: !state.IsServing(), Terminating: state.IsTerminating()}
	if len(e.Addresses) > 0 {
		read.Address = e.Addresses[0]
	}
	if e.Zone != nil {
		read.Zone = *e.Zone
	}
	if e.NodeName != nil {
		read.Node = *e.NodeName
	}
	return read
}

// Slices returns the slices of an address family, sorted by name.
func Slices(all []*discoveryv1.EndpointSlice, family corev1.IPFamily) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, slice := range all {
		if slice.AddressType == discoveryv1.AddressType(family) {
			list = append(list, slice)
		}
	}
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return list
}

package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/location"
)

func TestQueries(t *testing.T) {
	for mix, want := range map[string][]string{
		plain: {
			"web-0.bench.bench.svc.cluster.local A", "web-0.bench.bench.svc.cluster.local AAAA",
			"web-0.bench.svc.cluster.local A", "web-0.bench.svc.cluster.local AAAA",
			"api-0.example.com.bench.svc.cluster.local A", "api-0.example.com.bench.svc.cluster.local AAAA",
			"api-0.example.com.svc.cluster.local A", "api-0.example.com.svc.cluster.local AAAA",
			"api-0.example.com.cluster.local A", "api-0.example.com.cluster.local AAAA",
			"web-1.bench.bench.svc.cluster.local A",
		},
		headless: {"peer-0.bench.svc.cluster.local A", "peer-0.bench.svc.cluster.local AAAA", "peer-1.bench.svc.cluster.local A"},
		filtered: {"near-0.bench.svc.cluster.local A", "near-0.bench.svc.cluster.local AAAA", "near-1.bench.svc.cluster.local A"},
	} {
		lines := strings.Split(queries(mix), "\n")
		if len(lines) < len(want) || !slices.Equal(lines[:len(want)], want) {
			t.Errorf("%s queries begin with\n%s", mix, strings.Join(lines[:min(len(lines), len(want))], "\n"))
		}
	}
}

// A client is in the range of the first node of a zone, and no pod is in a node's range.
func TestClientsAreLocated(t *testing.T) {
	for round := range 2 * len(zones) {
		at := -1
		for i := range 100 {
			for _, of := range location.OfNode(newNode(i)).PodRanges {
				if of.Contains(podAddress(i)) {
					t.Errorf("%s has the pod %s", of, podAddress(i))
				}
				if of.Contains(client(round)) {
					at = i
				}
			}
		}
		if at != round%len(zones) {
			t.Errorf("the client %s is on node %d", client(round), at)
		}
	}
}

// Each client has endpoints in its zone, and others that it does not use.
func TestEndpointsAreInAllZones(t *testing.T) {
	slice := newSlice(newService("near-0", netip.Addr{}), 140, leastPods, leastPods/podsPerNode)
	group := newGroup(slice)
	var in []string
	for _, e := range group.Spec.Endpoints {
		in = append(in, e.Zone)
	}
	slices.Sort(in)
	if in = slices.Compact(in); !slices.Equal(in, zones[:]) || len(group.Spec.Endpoints) != perService {
		t.Errorf("%d endpoints are in %v", len(group.Spec.Endpoints), in)
	}
}

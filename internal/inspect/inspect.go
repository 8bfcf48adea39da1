// Package inspect judges objects of a cluster, or manifests. It explains the request, the plan and the state of a
// Service, its service on a node, its traffic, and the answer to an eviction of a pod.
//
// Its results are marshalled as they are: they are the types of "-o json" of explain, status and plan. It reads
// nothing, prints nothing and knows no clock: the commands do.
package inspect

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Kinds of objects that may be missing, as in Reading.Unread.
const (
	KindNodes    = "Nodes"
	KindSlices   = "EndpointSlices"
	KindGroups   = "EndpointGroups"
	KindLeases   = "Leases"
	KindLocators = "PodLocators"
	KindShifts   = "ZoneShifts"
	KindBudgets  = "TopologyDisruptionBudgets"
	KindPDBs     = "PodDisruptionBudgets"
)

// Figures predict the traffic of a plan, in percent from 0 to 100.
type Figures struct {
	InZone      float64 `json:"inZone"`
	SameNode    float64 `json:"sameNode,omitempty"` // where nodes look for endpoints of their own
	MaxOverload float64 `json:"maxOverload"`
	Unreached   int     `json:"unreached,omitempty"` // zones
}

func figuresOf(f allocate.Figures) *Figures {
	return &Figures{percent(f.InZone), percent(f.SameNode), percent(f.Overload), f.Unreached}
}

func percent(fraction float64) float64 { return plaintext.Rounded(100 * fraction) }

func carried(d allocate.Delivery) []allocate.Algorithm {
	return slices.DeleteFunc(slices.Clone(allocate.Algorithms()), func(a allocate.Algorithm) bool { return !d.CanCarry(a) })
}

// withoutWeights returns the algorithms whose plans have no weights, which DNS cannot carry.
func withoutWeights(algorithms []allocate.Algorithm) []allocate.Algorithm {
	return slices.DeleteFunc(slices.Clone(algorithms), func(a allocate.Algorithm) bool { return a.Weighted() })
}

// mostNamed is how many of many things a sentence names.
const mostNamed = 3

// NodeNames names a few of many nodes.
func NodeNames(nodes []string) string {
	noun := "nodes "
	if len(nodes) == 1 {
		noun = "node "
	}
	return noun + plaintext.FirstOf(slices.Sorted(slices.Values(nodes)), mostNamed)
}

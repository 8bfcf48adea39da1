// Package inspect judges what was read of a cluster, or of manifests: what a Service asks
// for, what is in force and why, what a node does for it, and what its traffic did; and
// whether a pod may be evicted.
//
// It takes objects of the API and returns values that are marshalled as they are: what
// "-o json" prints of explain, status and plan are its types. It reads nothing, prints
// nothing and knows no clock: the commands do.
package inspect

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/plaintext"
)

// Kinds of objects without which less can be said, as in Reading.Unread.
const (
	KindNodes    = "Nodes"
	KindSlices   = "EndpointSlices"
	KindGroups   = "EndpointGroups"
	KindLeases   = "Leases"
	KindLocators = "PodLocators"
	KindBudgets  = "TopologyDisruptionBudgets"
	KindPDBs     = "PodDisruptionBudgets"
)

// Figures are what a plan is expected to do for traffic, in percent from 0 to 100.
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

// withoutWeights are the algorithms whose plans DNS can carry, as hints can.
func withoutWeights(algorithms []allocate.Algorithm) []allocate.Algorithm {
	return slices.DeleteFunc(slices.Clone(algorithms), func(a allocate.Algorithm) bool { return a.Weighted() })
}

// mostNamed is how many things of many a sentence names.
const mostNamed = 3

// NodeNames names a few of many nodes.
func NodeNames(nodes []string) string {
	noun := "nodes "
	if len(nodes) == 1 {
		noun = "node "
	}
	return noun + plaintext.FirstOf(slices.Sorted(slices.Values(nodes)), mostNamed)
}

// Package spread says in which order the pods of a Deployment should go so that those that stay are
// spread best over failure domains, and how to have ReplicaSets delete them in that order: by deletion
// costs. It decides how many pods go in no case.
//
// # What is promised
//
// Of the pods that a ReplicaSet could delete next, the first by its own ranking with the costs of a Plan is
// in the fullest domain, and there on the fullest node. All pods of the Deployment count, those of its other
// ReplicaSets too. So whatever number of pods it deletes, no other choice leaves a better spread: the fullest domain is
// as small, and the emptiest as large, as they can be.
//
// What comes before costs in a ReplicaSet's ranking stays so: pods without a node, pending, of an unknown
// phase and unready ones go first (see Before). The promise is about each of these classes. So it is about pods of domains
// without allowance, which go last, and pods whose cost another owner has set: those with a negative cost
// go before all that a Plan has a cost for, and others after those of domains with an allowance.
//
// # Costs
//
// The pods of a domain have levels: 1 is the one that goes last. The cost of a pod is its level with a
// minus, so that pods of equal levels go in any order, and a pod that comes to a domain changes no other
// cost. The pods of other ReplicaSets lie below: one that comes moves the levels of its domain.
package spread

import (
	"cmp"
	"time"
)

// Phase is how far a pod has come, in the order in which ReplicaSets delete pods.
type Phase int

// The phases.
const (
	Pending Phase = iota
	Unknown
	Running
)

// Pod is a pod that is neither terminating nor finished.
type Pod struct {
	Name   string // which no other pod has
	Set    string // the ReplicaSet
	Node   string // empty without one
	Domain string // that of the node
	Phase  Phase
	Ready  bool
	// Cost is the deletion cost that is set, 0 without one. Foreign says that another owner set it.
	Cost    int32
	Foreign bool
	// Blocked says that its domain has no allowance: a budget would refuse its eviction.
	Blocked bool

	// What else ReplicaSets rank pods by. A Plan does without.
	UID                       string
	ReadySince, Created       time.Time
	Restarts, SidecarRestarts int // those of the container that restarted most
}

// class is what pods have in common among which the cost decides who goes first.
type class struct {
	assigned bool
	phase    Phase
	ready    bool
}

func classOf(p *Pod) class { return class{p.Node != "", p.Phase, p.Ready} }

// compare is negative if pods of the first class go before those of the second one.
func (a class) compare(b class) int {
	return cmp.Or(compareBool(a.assigned, b.assigned), cmp.Compare(a.phase, b.phase), compareBool(a.ready, b.ready))
}

// compareBool has false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// occupancy is how many pods there are.
type occupancy struct {
	domains, nodes map[string]int
}

func newOccupancy() occupancy { return occupancy{map[string]int{}, map[string]int{}} }

// add counts a pod, if it has a node.
func (o occupancy) add(p *Pod) {
	if p.Node == "" {
		return
	}
	o.domains[p.Domain]++
	o.nodes[p.Node]++
}

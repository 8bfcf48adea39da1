// Package coverage reads what a TopologyDisruptionBudget is about: which pods it covers, in
// which failure domains they stand, and how many their owners ask for. What it makes of the
// objects of the cluster is a disruption.State; what package disruption measures it writes
// into a status, with what is wrong with the budget.
//
// It decides about no eviction, and it reads no cluster: a World is what its caller knows at
// one moment. Nothing of it is changed, and time is in no result but as the objects have it.
package coverage

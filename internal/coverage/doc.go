// Package coverage reads what a TopologyDisruptionBudget is about: which pods it covers, in which failure domains they
// are, and how many pods their owners ask for. StateOf makes a disruption.State of the objects of a cluster. Status
// writes what package disruption measures into the status of a budget, and Problems says what is wrong with the budget.
//
// The package decides about no eviction and reads no cluster. A World has what its caller knows at one moment; it is
// never changed, and no result depends on the time of the call.
package coverage

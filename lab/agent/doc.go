// Package agent stands in for nodes without a network. It registers them, renews their Leases, and
// reports their pods as ready once they are bound. Nothing runs on these nodes, so a lab can have
// thousands. Nodes with a network have kubelets.
package agent

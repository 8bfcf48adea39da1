// Package agent stands in for nodes without network, of which there may be thousands: it
// registers them, renews their leases, and reports their pods as ready once they are bound.
// Nothing runs on them. Nodes with a network have kubelets.
package agent

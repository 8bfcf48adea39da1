// Package agent stands in for nodes without network, of which a lab can have thousands: it registers
// them, renews their Leases, and reports their pods as ready once they are bound. Nothing runs on
// them. Nodes with a network have kubelets.
package agent

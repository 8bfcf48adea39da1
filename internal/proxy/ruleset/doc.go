// Package ruleset decides which nftables rules a node needs for Services, and how to change the kernel's rules into them:
// ServicePorts in, transactions out, both as plain data. It remembers the kernel's rules, so that the cost of a change does
// not depend on the number of Services.
//
// It does not talk to the kernel, know Kubernetes, or read a clock.
//
// # The rules
//
// Each family has a table. A packet's destination, protocol and port are its front. A map leads the front to a chain for
// the number of endpoints. The chain draws a number, and looks up front and number in the slots, which have the targets. So
// rules do not change with endpoints. Only these come and go: chains for a number of endpoints, chains for the weights that
// share traffic among them, and chains for a port that remembers its clients.
//
// # Packets on their way
//
// The kernel applies a transaction atomically, but a packet that looks up twice may see the table before and after it. So
// each number that a packet may have drawn must have its slot. When endpoints are removed, a first transaction draws smaller
// numbers and moves targets to slots that stay. A later one deletes the unused slots and chains. See Table.Due.
package ruleset

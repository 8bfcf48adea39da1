// Package ruleset decides what nftables rules a node needs for Services, and how to change
// those that the kernel holds into them: ServicePorts in, transactions out, both as plain
// data. It keeps what a table holds, so that a change costs what it changes, however many
// Services there are.
//
// It does not talk to the kernel, know Kubernetes, or read a clock.
//
// # The rules
//
// Each family has a table. A packet's destination, protocol and port, its front, is looked
// up in a map that leads to a chain by the number of endpoints: it draws a number, and
// looks front and number up in the slots, which say where to send the packet. So the rules
// stay the same whatever comes and goes, but for chains by the number of endpoints, by how
// weights share traffic among them, and for each port that remembers its clients.
//
// # Packets on their way
//
// The kernel takes a transaction all at once, but a packet that looks up twice may see the
// table before and after it. So a number that some packet may have drawn must have its
// slot: when endpoints go, a first transaction lets smaller numbers be drawn and moves
// targets to slots that stay, and a later one deletes the slots, and the chains, that
// nothing leads to any more. See Table.Due.
package ruleset

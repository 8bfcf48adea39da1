// Package proxy serves Services on a node: it watches the API, compiles changed Services, and writes the difference to
// nftables. It decides when to program, and what to do when the API or the kernel fails.
//
// # The way of a change
//
//	cluster     watches the API and reports changed Services
//	programmer  takes them in turns and within bounds (scheduler, bounds)
//	compile     decides what the rules of each Service do
//	ruleset     decides which rules that needs, and how they differ from the kernel's
//	writer      writes the difference, and finds the ports that the kernel refuses
//	kernel      carries out transactions by netlink
//
// After a write the programmer passes stale connections and clients to the cleaner, acknowledgements to lease, warnings to
// events, ports for health checks to healthPorts, and endpoints to the index, for accounting. proving holds
// acknowledgements back while probes show that packets bypass the rules. checks finds changes by other programs.
//
// DryRun goes the same way once, up to ruleset.
//
// # Goroutines
//
// Run starts one for each of these:
//
//	programmer.run    owns the state of programmer, writer, healthPorts, warnings, proving, scheduler,
//	                  bounds, checks, and the families with their tables
//	Watches.Run       fills the Catalogue, by a reflector for each resource
//	cleaner.run       forgets connections and clients
//	Keeper.Run        writes the Lease
//	Writer.Run        writes events
//	Prober.Run        probes, if there is a Service for that
//	runAccountant     counts connections, if asked for
//	followInterfaces  reads the node's addresses, if NodePorts depend on them
//
// The programmer starts another one while it reads all rules to compare them. At the end the cleaner handles the requests
// that are left.
//
// These have a lock of their own: the Catalogue, the cleaner's queues, the Keeper, health.State, the
// index, the Prober's results, and kernel.Conn. Any goroutine may call the programmer's setLocal,
// setForgotten, stillStale and resolve.
package proxy

// Package proxy has the kernel of a node serve Services: it watches the API, has what changes
// compiled, and writes the difference to nftables. It decides when something is programmed, and
// what becomes of that when the API or the kernel fails.
//
// # The way of a change
//
//	cluster     watches the API, and says which Services have changed
//	programmer  takes them in turns and within bounds (scheduler, bounds)
//	compile     decides what the rules of each are to do
//	ruleset     decides what rules there are for that, and what differs from the kernel's
//	writer      writes the difference, and finds what the kernel refuses
//	kernel      carries it out, by netlink
//
// Afterwards the programmer hands on what follows from it: connections and clients to be
// forgotten to the cleaner, what is acknowledged to lease, what users should know to events,
// ports for health checks to healthPorts, and the Services of fronts to the index, by which
// accounting counts. proving holds acknowledgements back while probes show that packets do not
// come through the rules. checks see that others have changed the rules.
//
// DryRun goes the same way once, as far as ruleset.
//
// # Goroutines, and who owns what
//
// Run starts one goroutine for each of these, and is that of the programmer itself:
//
//	programmer.run    all state of programmer, writer, healthPorts, warnings, proving, scheduler, bounds,
//	                  checks, and of the families with their tables
//	Watches.Run       fills the Catalogue, by a reflector for each resource
//	cleaner.run       forgets connections and clients
//	Keeper.Run        writes the Lease
//	Writer.Run        writes events
//	Prober.Run        probes, if a Service is named for that
//	runAccountant     counts connections, if that is asked for
//	followInterfaces  reads the node's addresses, if NodePorts depend on them
//
// The programmer starts another one for as long as it reads all rules to compare them. When it
// and the cleaner have ended, Run has the cleaner finish what is left.
//
// What several goroutines use has a lock of its own: the Catalogue, the queues of the cleaner,
// what the Keeper says, health.State, the index, the Prober's results, and kernel.Conn. Of the
// programmer others may call setLocal and setForgotten, which leave something for its next step,
// and stillStale, which takes the lock that a family holds while its table commits.
package proxy

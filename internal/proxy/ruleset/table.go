package ruleset

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Table is the rules of one family: what is wanted of them, what the kernel holds of them, and
// which ServicePorts it is known to have taken. It is not safe for use by several goroutines
// at once.
type Table struct {
	progress
	config  Config
	ports   map[string]*port
	claims  claims
	hairpin []netip.Addr // sorted

	// parts are the chains and maps that not every table has.
	parts       map[string]*part
	clusterIPs  map[netip.Addr]int32 // how many fronts make an address one of Services
	lingering   lingering
	withRemoved map[*part]bool      // maps that may remember clients with removed targets
	recalled    map[*part]time.Time // those of them whose clients were forgotten, and when
	due         time.Time           // when what the last Commit took out of use may go

	staged        map[string]*port // what the next Commit changes, nil for a port that goes
	stagedConfig  *Config
	stagedHairpin *[]netip.Addr
	listing       *Listing // what the kernel holds, if the next Commit cannot go by the last
}

// NewTable is a table without ServicePorts. Its first Commit makes everything anew,
// whatever the kernel holds, unless Adopt says what that is.
func NewTable(config Config) *Table {
	return &Table{
		progress:    newProgress(),
		config:      config.normal(),
		ports:       make(map[string]*port),
		claims:      newClaims(),
		parts:       make(map[string]*part),
		clusterIPs:  make(map[netip.Addr]int32),
		lingering:   newLingering(),
		withRemoved: make(map[*part]bool),
		recalled:    make(map[*part]time.Time),
		staged:      make(map[string]*port),
		listing:     &Listing{Unread: true},
	}
}

// Set stages a ServicePort, be it new or another than before. The error says what of it
// no rule can be made of and is left out: the rest is staged all the same.
func (t *Table) Set(sp ServicePort) error {
	t.ask(sp.Name, &sp)
	p, err := newPort(t.config, sp)
	t.staged[sp.Name] = p
	return err
}

// Remove stages that a ServicePort goes.
func (t *Table) Remove(name string) {
	t.ask(name, nil)
	if t.ports[name] == nil {
		delete(t.staged, name)
		return
	}
	t.staged[name] = nil
}

// SetHairpin stages the addresses of all endpoints on this node. A connection from one of them to
// itself is masqueraded, so that its answers come back through the node.
func (t *Table) SetHairpin(addresses []netip.Addr) {
	mine := make([]netip.Addr, 0, len(addresses))
	for _, a := range addresses {
		if t.config.Family.holds(a) {
			mine = append(mine, a)
		}
	}
	slices.SortFunc(mine, netip.Addr.Compare)
	mine = slices.Compact(mine)
	t.stagedHairpin = &mine
}

// Configure stages another Config. The family and MaxAffinityClients stay.
func (t *Table) Configure(config Config) {
	config.Family, config.MaxAffinityClients = t.config.Family, t.config.MaxAffinityClients
	config = config.normal()
	t.stagedConfig = &config
}

// Adopt makes the next Commit go by what the kernel holds: after a restart, a refused transaction, or
// a change by somebody else. What is right stays, targets keep their slots where they can, and the
// rest is put right. If the table is missing, has flags, holds foreign parts or is Unread, one
// transaction replaces it. The table keeps the listing until the next Commit.
func (t *Table) Adopt(listing Listing) {
	t.read(listing)
	t.listing = &listing
}

// Staged are the names of the ServicePorts that the next Commit changes, in order.
func (t *Table) Staged() []string {
	return slices.Sorted(maps.Keys(t.staged))
}

// Commit returns the smallest transaction for what is staged and for deletions that are due. The
// table goes on as if the kernel had taken it. Call Confirm if it has, and Adopt if it has not: nothing
// needs to be staged again then. What is out of use is deleted by a later Commit, see Due.
func (t *Table) Commit(now time.Time) Commit {
	return newRevision(t, now).commit()
}

// Written notes when the kernel took the transaction of the last Commit. Time to linger counts from
// then on.
func (t *Table) Written(now time.Time) {
	if until := now.Add(t.config.Linger); until.After(t.due) {
		t.lingering.extend(t.due, until)
		for p := range t.withRemoved {
			for i := range p.gone {
				if p.gone[i].until.Equal(t.due) {
					p.gone[i].until = until
				}
			}
		}
		t.due = until
	}
}

// Due returns when the next Commit has something to delete, and whether any has.
func (t *Table) Due() (time.Time, bool) {
	if len(t.recalled) > 0 {
		return t.due, true
	}
	return t.lingering.next()
}

// Disputed lists each ServicePort that goes without a front that several want, as of the last Commit.
func (t *Table) Disputed() []Dispute {
	return t.claims.disputes()
}

package ruleset

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Table has the rules of one family: the wanted ones, the kernel's, and the confirmed ServicePorts. Only one goroutine at
// a time may use it.
type Table struct {
	progress
	config  Config
	ports   map[string]*port
	claims  claims
	hairpin []netip.Addr // sorted

	// parts has the chains and maps beside the ones that every table has.
	parts       map[string]*part
	clusterIPs  map[netip.Addr]int32 // the number of fronts by cluster IP
	lingering   lingering
	withRemoved map[*part]bool      // maps whose clients may have removed targets
	recalled    map[*part]time.Time // when clients of these maps were deleted
	due         time.Time           // when the unused parts of the last Commit may be deleted

	staged        map[string]*port // the changes of the next Commit, nil for a removal
	stagedConfig  *Config
	stagedHairpin *[]netip.Addr
	listing       *Listing // the kernel's rules, if they are not those of the last Commit
}

// NewTable returns a table without ServicePorts. Its first Commit replaces the kernel's table, unless Adopt comes before.
func NewTable(config Config) *Table {
	return &Table{
		progress:    newProgress(),
		config:      config.normalized(),
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

// Set stages a new or changed ServicePort.
func (t *Table) Set(sp ServicePort) {
	t.ask(sp.Name, &sp)
	t.staged[sp.Name] = newPort(t.config, sp)
}

// Remove stages the removal of a ServicePort.
func (t *Table) Remove(name string) {
	t.ask(name, nil)
	if t.ports[name] == nil {
		delete(t.staged, name)
		return
	}
	t.staged[name] = nil
}

// SetHairpin stages the addresses of all endpoints on this node, of both families. Connections from one of them to itself are masqueraded, so
// that answers come back through the node.
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
	config = config.normalized()
	t.stagedConfig = &config
}

// Adopt makes the next Commit start from a listing of the kernel: after a restart, a refused transaction, or a change by
// another program. Right rules stay, targets keep their slots where possible, and wrong rules are repaired. If the table is
// missing, has flags, has foreign parts or is Unread, one transaction replaces it. The table keeps the listing until the
// next Commit.
func (t *Table) Adopt(listing Listing) {
	t.read(listing)
	t.listing = &listing
}

// Staged returns the sorted names of the ServicePorts that the next Commit changes.
func (t *Table) Staged() []string {
	return slices.Sorted(maps.Keys(t.staged))
}

// Commit returns the smallest transaction for the staged changes and the due deletions. The table assumes that the kernel
// takes it. Call Confirm if it does, and Adopt if it does not: nothing needs to be staged again. A later Commit deletes
// unused parts, see Due.
func (t *Table) Commit(now time.Time) Commit {
	return newRevision(t, now).commit()
}

// Written records when the kernel took the transaction of the last Commit. The linger time begins then.
func (t *Table) Written(now time.Time) {
	if until := now.Add(Linger); until.After(t.due) {
		t.lingering.extend(t.due, until)
		for p := range t.withRemoved {
			for i := range p.removed {
				if p.removed[i].until.Equal(t.due) {
					p.removed[i].until = until
				}
			}
		}
		t.due = until
	}
}

// Due returns when a Commit is due for deletions or rechecks, and whether any is.
func (t *Table) Due() (time.Time, bool) {
	if len(t.recalled) > 0 {
		return t.due, true
	}
	return t.lingering.nextDue()
}

// Owner returns the name of the ServicePort that has a front, as of the last Commit, empty without one.
func (t *Table) Owner(front Front) string {
	if winner, taken := t.claims.winners[front]; taken {
		return winner.port.name
	}
	return ""
}

// Disputed lists each ServicePort that lost a front to another one, as of the last Commit.
func (t *Table) Disputed() []Dispute {
	return t.claims.disputes()
}

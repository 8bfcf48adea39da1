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

	// parts are the chains and maps that the kernel holds, or will with the next Commit,
	// besides those that every table has.
	parts map[string]*part
	// clusterIPs count the fronts for which an address is one of a Service.
	clusterIPs map[netip.Addr]int32
	lingering  lingering
	// buried are the maps that clients may be remembered in with targets that went.
	buried map[*part]bool
	// recalled are those of them whose clients were forgotten, from which time on.
	recalled map[*part]time.Time
	// due is until when what the last Commit took out of use lingers.
	due time.Time

	// staged are the ports that the next Commit changes, nil where one goes.
	staged        map[string]*port
	stagedConfig  *Config
	stagedHairpin *[]netip.Addr
	// listing is what the kernel holds, if the next Commit has to go by that instead of
	// by the last one.
	listing *Listing
}

// NewTable is a table without ServicePorts. Its first Commit makes everything anew,
// whatever the kernel holds, unless Adopt says what that is.
func NewTable(config Config) *Table {
	return &Table{
		progress:   newProgress(),
		config:     config.normal(),
		ports:      make(map[string]*port),
		claims:     newClaims(),
		parts:      make(map[string]*part),
		clusterIPs: make(map[netip.Addr]int32),
		lingering:  newLingering(),
		buried:     make(map[*part]bool),
		recalled:   make(map[*part]time.Time),
		staged:     make(map[string]*port),
		listing:    &Listing{Unread: true},
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

// SetHairpin stages which addresses endpoints on this node have, all of them. A
// connection from one of them to itself is masqueraded, so that its answers come back
// through the node. Addresses of another family are left out.
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

// Adopt makes the next Commit go by what the kernel holds, be it after a restart, because
// it refused a transaction, or because somebody else changed the table. What is right
// stays, targets keep their slots where they can, and the rest is put right. If there is
// no table, or one that has flags or holds what cannot be told apart, all is made anew in one
// transaction, which also deletes what there is: so does a Listing that is Unread. The
// table keeps the listing until the next Commit.
func (t *Table) Adopt(listing Listing) {
	t.read(listing)
	t.listing = &listing
}

// Staged are the names of the ServicePorts that the next Commit changes, in order.
func (t *Table) Staged() []string {
	return slices.Sorted(maps.Keys(t.staged))
}

// Commit is the smallest transaction for all that is staged and for all deletions that
// are due. The table goes on as if the kernel had taken it: if it has not, Adopt says what
// it holds instead, and nothing needs to be staged again. If it has, Confirm says so. What
// nothing leads to any more is deleted by a later Commit, see Due.
func (t *Table) Commit(now time.Time) Commit {
	return newRevision(t, now).commit()
}

// Written notes when the kernel had taken the transaction of the last Commit, which may
// have been long after that: only from then on is nothing led to what lingers.
func (t *Table) Written(now time.Time) {
	if until := now.Add(t.config.Linger); until.After(t.due) {
		t.lingering.extend(t.due, until)
		for p := range t.buried {
			for i := range p.gone {
				if p.gone[i].until.Equal(t.due) {
					p.gone[i].until = until
				}
			}
		}
		t.due = until
	}
}

// Due is when the next Commit is due that deletes what an earlier one left to packets on
// their way, or has no more use. It is false if there is nothing to delete.
func (t *Table) Due() (time.Time, bool) {
	if len(t.recalled) > 0 {
		return t.due, true
	}
	return t.lingering.next()
}

// Disputed are the fronts that several ServicePorts want, with each that goes without, in
// order, as of the last Commit.
func (t *Table) Disputed() []Dispute {
	return t.claims.disputes()
}

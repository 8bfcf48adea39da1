package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// index finds the Service of an address that clients connect to, and where its endpoints
// are, for accounting. A nil index knows nothing and costs nothing. Its methods may be
// called by several goroutines.
type index struct {
	mu       sync.RWMutex
	fronts   map[ruleset.Front][]claim // of which the first has the front
	services map[types.NamespacedName]*destination
	// gone are endpoints that went, in the order in which they did.
	gone []departure
}

// destination is a Service that connections go to.
type destination struct {
	name   types.NamespacedName
	fronts []ruleset.Front
	// endpoints are those that there are, and former those that went lately, by the
	// time when they did.
	endpoints []compile.Endpoints
	former    map[netip.Addr]former
}

type former struct {
	zone string
	at   time.Time
}

// claim is the wish of a Service for a front.
type claim struct {
	precedence int
	rank, port string
	to         *destination
}

type departure struct {
	from    *destination
	address netip.Addr
	at      time.Time
}

const (
	// goneFor is how long an endpoint is known that went: a connection is reported when the
	// kernel forgets it.
	goneFor = 10 * time.Minute
	// mostGone is of how many that is known, however many go: some megabytes.
	mostGone = 50_000
)

func newIndex() *index {
	return &index{fronts: map[ruleset.Front][]claim{}, services: map[types.NamespacedName]*destination{}}
}

// set notes what a Service is, or that it is none any more if it has no families.
func (x *index) set(name types.NamespacedName, compiled []compile.Family, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.prune(now)
	to := x.services[name]
	if to == nil {
		if len(compiled) == 0 {
			return
		}
		to = &destination{name: name, former: map[netip.Addr]former{}}
		x.services[name] = to
	}
	x.withdraw(to, to.fronts)
	to.fronts = nil
	before := to.endpoints
	to.endpoints = nil
	for i := range compiled {
		to.endpoints = append(to.endpoints, compiled[i].Endpoints)
		for j := range compiled[i].Ports {
			x.claim(to, &compiled[i].Ports[j])
		}
	}
	if len(compiled) == 0 {
		delete(x.services, name) // with whoever went before
		return
	}
	for _, list := range before {
		for _, e := range list {
			if _, stays := to.zone(e.Address); !stays {
				to.former[e.Address] = former{e.Zone, now}
				x.gone = append(x.gone, departure{to, e.Address, now})
			}
		}
	}
}

// lose notes that a Service has some fronts no more.
func (x *index) lose(name types.NamespacedName, fronts []ruleset.Front) {
	if x == nil || len(fronts) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if to := x.services[name]; to != nil {
		x.withdraw(to, fronts)
	}
}

func (x *index) withdraw(to *destination, fronts []ruleset.Front) {
	for _, front := range fronts {
		rest := slices.DeleteFunc(x.fronts[front], func(c claim) bool { return c.to == to })
		if len(rest) > 0 {
			x.fronts[front] = rest
		} else {
			delete(x.fronts, front)
		}
	}
}

// claim notes what a port claims. Of several claims the rules go by what the front is to
// them, then by the lowest rank, then by the lowest name.
func (x *index) claim(to *destination, port *ruleset.ServicePort) {
	for i := range port.Fronts {
		front := port.Fronts[i].Front
		x.fronts[front] = append(x.fronts[front], claim{port.Fronts[i].Precedence(), port.Rank, port.Name, to})
		slices.SortFunc(x.fronts[front], func(a, b claim) int {
			return cmp.Or(cmp.Compare(a.precedence, b.precedence), cmp.Compare(a.rank, b.rank), cmp.Compare(a.port, b.port))
		})
		to.fronts = append(to.fronts, front)
	}
}

// prune forgets endpoints that went long ago, and the first that went if they are many.
func (x *index) prune(now time.Time) {
	n := 0
	for ; n < len(x.gone) && (len(x.gone)-n > mostGone || now.Sub(x.gone[n].at) >= goneFor); n++ {
		one := x.gone[n]
		if one.from.former[one.address].at.Equal(one.at) {
			delete(one.from.former, one.address)
		}
	}
	// To move the rest would cost more the more there is of it.
	clear(x.gone[:n])
	x.gone = x.gone[n:]
}

// zone is where an endpoint is that there is.
func (d *destination) zone(address netip.Addr) (string, bool) {
	for _, list := range d.endpoints {
		if e, found := list.Find(address); found {
			return e.Zone, true
		}
	}
	return "", false
}

// resolve says what a connection to a front is, which the rules have sent to an endpoint.
func (x *index) resolve(front ruleset.Front, target netip.Addr) (accounting.Flow, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	claims := x.fronts[front]
	if len(claims) == 0 {
		return accounting.Flow{}, false
	}
	to := claims[0].to
	zone, found := to.zone(target)
	if !found {
		zone = to.former[target].zone
	}
	return accounting.Flow{Namespace: to.name.Namespace, Service: to.name.Name, DestinationZone: zone}, true
}

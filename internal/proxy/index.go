package proxy

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// index finds the Service and the zone of a connection, for accounting. A nil index is empty. Any goroutine may
// call its methods.
type index struct {
	mu       sync.RWMutex
	fronts   map[ruleset.Front][]claim // the first claim wins
	services map[types.NamespacedName]*destination
	// removed has the zones of recently removed endpoints.
	removed *cache.LRUExpireCache
}

// destination is a Service that connections go to.
type destination struct {
	name      types.NamespacedName
	fronts    []ruleset.Front
	endpoints []compile.Endpoints
}

// removedEndpoint is a key of index.removed.
type removedEndpoint struct {
	service types.NamespacedName
	address netip.Addr
}

type claim struct {
	precedence int
	rank, port string
	to         *destination
}

const (
	// removedKept is how long a removed endpoint is known. Connections are reported after they have ended.
	removedKept = 10 * time.Minute
	// maxRemoved bounds the known removed endpoints to a few megabytes.
	maxRemoved = 20_000
)

func newIndex(clock cache.Clock) *index {
	return &index{
		fronts: map[ruleset.Front][]claim{}, services: map[types.NamespacedName]*destination{},
		removed: cache.NewLRUExpireCacheWithClock(maxRemoved, clock),
	}
}

// set stores a Service, or removes it if it has no families.
func (x *index) set(name types.NamespacedName, compiled []compile.Family) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	to := x.services[name]
	if to == nil {
		if len(compiled) == 0 {
			return
		}
		to = &destination{name: name}
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
		delete(x.services, name)
		return
	}
	for _, list := range before {
		for _, e := range list {
			if _, stays := to.zone(e.Address); !stays {
				x.removed.Add(removedEndpoint{name, e.Address}, e.Zone, removedKept)
			}
		}
	}
}

// removeFronts removes fronts of a Service.
func (x *index) removeFronts(name types.NamespacedName, fronts []ruleset.Front) {
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

// claim stores the fronts of a port. As in the rules, claims to a front are ordered by precedence, rank and name.
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

func (d *destination) zone(address netip.Addr) (string, bool) {
	for _, list := range d.endpoints {
		if e, found := list.Find(address); found {
			return e.Zone, true
		}
	}
	return "", false
}

// resolve returns the Service of a front and the zone of the connection's endpoint.
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
		if known, _ := x.removed.Get(removedEndpoint{to.name, target}); known != nil {
			zone, _ = known.(string)
		}
	}
	return accounting.Flow{Namespace: to.name.Namespace, Service: to.name.Name, DestinationZone: zone}, true
}

package proxy

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/compile"
)

// index finds the zone of a connection's endpoint, for accounting. A nil index is empty. Any goroutine may call its
// methods.
type index struct {
	mu sync.RWMutex
	// services has the endpoints of each Service, by family.
	services map[types.NamespacedName][]compile.Endpoints
	// removed has the zones of recently removed endpoints.
	removed *cache.LRUExpireCache
}

// removedEndpoint is a key of index.removed.
type removedEndpoint struct {
	service types.NamespacedName
	address netip.Addr
}

const (
	// removedKept is how long a removed endpoint is known. Connections are reported after they have ended.
	removedKept = 10 * time.Minute
	// maxRemoved bounds the known removed endpoints to a few megabytes.
	maxRemoved = 20_000
)

func newIndex(clock cache.Clock) *index {
	return &index{services: map[types.NamespacedName][]compile.Endpoints{}, removed: cache.NewLRUExpireCacheWithClock(maxRemoved, clock)}
}

// set stores a Service, or removes it if it has no families.
func (x *index) set(name types.NamespacedName, compiled []compile.Family) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.services[name]
	if len(compiled) == 0 {
		delete(x.services, name)
		return
	}
	after := make([]compile.Endpoints, len(compiled))
	for i := range compiled {
		after[i] = compiled[i].Endpoints
	}
	x.services[name] = after
	for _, list := range before {
		for _, e := range list {
			if _, stays := zoneOf(after, e.Address); !stays {
				x.removed.Add(removedEndpoint{name, e.Address}, e.Zone, removedKept)
			}
		}
	}
}

func zoneOf(endpoints []compile.Endpoints, address netip.Addr) (string, bool) {
	for _, list := range endpoints {
		if e, found := list.Find(address); found {
			return e.Zone, true
		}
	}
	return "", false
}

// resolve returns the flow of a connection to an endpoint of a Service. It returns false for an unknown Service.
func (x *index) resolve(service types.NamespacedName, target netip.Addr) (accounting.Flow, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	endpoints, known := x.services[service]
	if !known {
		return accounting.Flow{}, false
	}
	zone, found := zoneOf(endpoints, target)
	if !found {
		if removed, _ := x.removed.Get(removedEndpoint{service, target}); removed != nil {
			zone, _ = removed.(string)
		}
	}
	return accounting.Flow{Namespace: service.Namespace, Service: service.Name, DestinationZone: zone}, true
}

package proxy

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/health"
)

type answerer interface {
	Set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) map[types.NamespacedName]error
	Close()
}

// doors keep the ports open at which load balancers ask. A port may be taken for a while:
// kube-proxy closes it when it has noticed that it does not serve a Service any more.
type doors struct {
	answerer answerer
	clock    clock.PassiveClock
	metrics  *metrics
	log      logr.Logger
	// told is told once of a Service whose port stays taken.
	told func(types.NamespacedName, uint16, error)

	addresses []netip.Addr
	services  map[types.NamespacedName]health.Service
	failing   map[types.NamespacedName]*failingDoor
}

type failingDoor struct {
	since time.Time
	told  bool
}

// doorPatience is how long a port may be taken before somebody is told.
const doorPatience = 15 * time.Second

// set opens and closes ports so that load balancers are answered for the Services.
func (d *doors) set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) {
	if slices.Equal(addresses, d.addresses) && maps.Equal(services, d.services) {
		return
	}
	d.addresses, d.services = addresses, maps.Clone(services)
	d.open(ctx)
}

func (d *doors) retry(ctx context.Context) {
	if len(d.failing) > 0 {
		d.open(ctx)
	}
}

func (d *doors) open(ctx context.Context) {
	failures := d.answerer.Set(ctx, d.addresses, d.services)
	now := d.clock.Now()
	for name := range d.failing {
		if failures[name] == nil {
			delete(d.failing, name)
		}
	}
	for name, err := range failures {
		one := d.failing[name]
		if one == nil {
			one = &failingDoor{since: now}
			if d.failing == nil {
				d.failing = map[types.NamespacedName]*failingDoor{}
			}
			d.failing[name] = one
		}
		if !one.told && now.Sub(one.since) >= doorPatience {
			one.told = true
			d.metrics.failed(stepHealth)
			d.log.Error(err, "Load balancers cannot ask for a Service", "service", name.String(), "port", d.services[name].Port)
			d.told(name, d.services[name].Port, err)
		}
	}
}

func (d *doors) close() { d.answerer.Close() }

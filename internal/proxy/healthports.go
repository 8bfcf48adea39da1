package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
)

type answerer interface {
	Set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) map[types.NamespacedName]error
	Broken() bool
	Close()
}

// healthPorts keep the ports open at which load balancers ask. A port may be taken for a while:
// kube-proxy closes it when it has noticed that it does not serve a Service any more.
type healthPorts struct {
	answerer  answerer
	addresses []netip.Addr
	services  map[types.NamespacedName]health.Service
	failures  map[types.NamespacedName]error
	// closed are the Services of failures.
	closed  map[types.NamespacedName]*closedPort
	metrics *metrics
	log     logr.Logger
}

type closedPort struct {
	since    time.Time
	reported bool
}

// set opens and closes ports so that load balancers are answered for the Services.
func (h *healthPorts) set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) {
	if slices.Equal(addresses, h.addresses) && maps.Equal(services, h.services) {
		return
	}
	h.addresses, h.services = addresses, maps.Clone(services)
	h.failures = h.answerer.Set(ctx, h.addresses, h.services)
}

func (h *healthPorts) retry(ctx context.Context) {
	if len(h.failures) > 0 || h.answerer.Broken() {
		h.failures = h.answerer.Set(ctx, h.addresses, h.services)
	}
}

// report logs and counts each port that stays closed for longer than kube-proxy may hold it.
func (h *healthPorts) report(now time.Time) {
	maps.DeleteFunc(h.closed, func(name types.NamespacedName, _ *closedPort) bool { return h.failures[name] == nil })
	for name, err := range h.failures {
		port := h.closed[name]
		if port == nil {
			port = &closedPort{since: now}
			if h.closed == nil {
				h.closed = map[types.NamespacedName]*closedPort{}
			}
			h.closed[name] = port
		}
		if !port.reported && now.Sub(port.since) >= events.HealthPortWarnAfter {
			port.reported = true
			h.metrics.failed(stepHealth)
			h.log.Info("Load balancers cannot ask for a Service", "service", name.String(), "port", h.services[name].Port, "cause", err.Error())
		}
	}
}

// notes say why the ports of Services are not open.
func (h *healthPorts) notes(node string) map[types.NamespacedName]string {
	notes := make(map[types.NamespacedName]string, len(h.failures))
	for name, err := range h.failures {
		notes[name] = fmt.Sprintf("node %s does not answer health checks of load balancers on port %d: %v", node, h.services[name].Port, err)
	}
	return notes
}

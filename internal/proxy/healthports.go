package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
)

type answerer interface {
	Set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) map[types.NamespacedName]error
	Broken() bool
	Close()
}

type recordFunc func(about *corev1.ObjectReference, eventType, reason, note string)

// healthPorts keeps the ports open that load balancers ask about the health of Services. Another process may hold
// a port for a while: kube-proxy closes its own only after it has noticed that it no longer serves the Service.
type healthPorts struct {
	answerer  answerer
	addresses []netip.Addr
	services  map[types.NamespacedName]health.Service
	failures  map[types.NamespacedName]error
	metrics   *metrics
	log       logr.Logger
}

// set opens the ports of these Services at the addresses, and closes all others.
func (h *healthPorts) set(ctx context.Context, addresses []netip.Addr, services map[types.NamespacedName]health.Service) {
	if slices.Equal(addresses, h.addresses) && maps.Equal(services, h.services) {
		return
	}
	h.addresses, h.services = addresses, maps.Clone(services)
	h.failures = h.answerer.Set(ctx, h.addresses, h.services)
}

// retry opens ports again that could not be opened, or that failed since.
func (h *healthPorts) retry(ctx context.Context) {
	if len(h.failures) > 0 || h.answerer.Broken() {
		h.failures = h.answerer.Set(ctx, h.addresses, h.services)
	}
}

// countWarnings wraps a recorder of events: it counts and logs each warning about a closed port.
func (h *healthPorts) countWarnings(record recordFunc) recordFunc {
	return func(about *corev1.ObjectReference, eventType, reason, note string) {
		if reason == events.ReasonHealthPortTaken {
			h.metrics.failed(stepHealth)
			h.log.Info("A port for health checks of load balancers stays closed", "service", about.Namespace+"/"+about.Name, "cause", note)
		}
		record(about, eventType, reason, note)
	}
}

// notes returns the reason for each Service whose port is closed.
func (h *healthPorts) notes(node string) map[types.NamespacedName]string {
	notes := make(map[types.NamespacedName]string, len(h.failures))
	for name, err := range h.failures {
		notes[name] = fmt.Sprintf("node %s does not answer health checks of load balancers on port %d: %v", node, h.services[name].Port, err)
	}
	return notes
}

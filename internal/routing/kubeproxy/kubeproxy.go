// Package kubeproxy is the rule by which kube-proxy chooses among the endpoints of a port for the traffic policy
// Cluster. vicinity-proxy follows it for Services without groups, and explanations use it for stock proxies.
package kubeproxy

// Mode is a way to choose among ready endpoints.
type Mode string

// The modes, in the order in which they are tried.
const (
	SameNode Mode = "node" // those hinted to its node
	SameZone Mode = "zone" // those hinted to its zone
	All      Mode = "all"  // all, wherever they are
)

// Ready counts the ready endpoints of a port as the proxy of one node sees them.
type Ready struct {
	Endpoints int
	// WithNodeHints and WithZoneHints count endpoints with hints of the kind, and ForNode and ForZone endpoints whose
	// hints name the node or its zone.
	WithNodeHints, WithZoneHints int
	ForNode, ForZone             int
}

// Mode returns the proxy's choice: by hints for nodes or else for zones, if all endpoints have such hints and any is
// for it.
func (r Ready) Mode() Mode {
	switch {
	case r.AllHaveNodeHints() && r.ForNode > 0:
		return SameNode
	case r.AllHaveZoneHints() && r.ForZone > 0:
		return SameZone
	}
	return All
}

// AllHaveNodeHints reports whether hints for nodes count.
func (r Ready) AllHaveNodeHints() bool { return r.WithNodeHints == r.Endpoints }

// AllHaveZoneHints reports whether hints for zones count.
func (r Ready) AllHaveZoneHints() bool { return r.WithZoneHints == r.Endpoints }

// UsesTerminating reports whether terminating endpoints that still serve are used, because none is ready.
func (r Ready) UsesTerminating() bool { return r.Endpoints == 0 }

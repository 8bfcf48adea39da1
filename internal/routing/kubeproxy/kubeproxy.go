// Package kubeproxy is the rule by which kube-proxy chooses among the endpoints of a port
// for the traffic policy Cluster. vicinity-proxy goes by it for Services without groups,
// and explanations tell what stock proxies do.
package kubeproxy

// Mode is how a proxy chooses among endpoints that are ready.
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
	// WithNodeHints and WithZoneHints have hints of the kind, ForNode and ForZone such
	// that name the node and its zone.
	WithNodeHints, WithZoneHints int
	ForNode, ForZone             int
}

// Mode is how the proxy chooses: by hints for nodes or else for zones, if all endpoints
// have such and any is for it.
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

// UsesTerminating reports whether endpoints that still serve while they terminate are used,
// because none is ready.
func (r Ready) UsesTerminating() bool { return r.Endpoints == 0 }

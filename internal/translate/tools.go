package translate

// Tools are what a Cluster leaves to others, so that it is a value without locks. Package
// capacity has them.
type Tools struct {
	// Evaluate computes the capacity of each zone by an expression. Without it nodes are
	// counted instead.
	Evaluate func(expression string, zones []Zone) (map[string]float64, error)
	// Capacities and Nodes remember what was computed from all nodes. Each view of the
	// nodes is as large as the cluster. Without them it is computed each time.
	Capacities, Nodes Memory
}

// Memory keeps values that can be computed again at any time. It must be safe for
// concurrent use if the cluster is used so.
type Memory interface {
	// Load finds the value that was stored for a key.
	Load(key any) (value any, known bool)
	// Store keeps a value, for some time.
	Store(key, value any)
}

// With is the same cluster with tools.
func (c *Cluster) With(tools Tools) *Cluster {
	with := *c
	with.tools = tools
	return &with
}

// remembered is what a memory has for a key or, if it has nothing, what compute gives.
func remembered[V any](memory Memory, key any, compute func() V) V {
	if memory == nil {
		return compute()
	}
	if value, known := memory.Load(key); known {
		return value.(V)
	}
	value := compute()
	memory.Store(key, value)
	return value
}

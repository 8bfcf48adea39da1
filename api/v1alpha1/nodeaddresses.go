package v1alpha1

// The ConfigMap by which the controller tells vicinity-proxy which addresses the nodes
// of the cluster have. Each value has a line for each address or prefix.
const (
	// ConfigMapNodeAddresses is its name, in the namespace of Vicinity.
	ConfigMapNodeAddresses = "vicinity-node-addresses"
	// KeyNodeAddresses is the key of the internal and external addresses of all nodes.
	KeyNodeAddresses = "nodes"
	// KeyPodRanges is the key of the ranges that nodes give their pods addresses from.
	KeyPodRanges = "pods"
)

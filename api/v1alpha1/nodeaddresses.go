package v1alpha1

// The ConfigMap with the addresses of the cluster's nodes, which the controller
// writes for vicinity-proxy. Each value has a line for each address or prefix.
const (
	// ConfigMapNodeAddresses is its name, in the namespace of Vicinity.
	ConfigMapNodeAddresses = "vicinity-node-addresses"
	// KeyNodeAddresses is the key of the internal and external addresses of all nodes.
	KeyNodeAddresses = "nodes"
	// KeyPodRanges is the key of the ranges from which nodes give addresses to
	// pods.
	KeyPodRanges = "pods"
)

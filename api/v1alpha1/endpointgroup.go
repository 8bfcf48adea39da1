package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LabelService on an EndpointGroup names its Service.
	LabelService = "vicinity.dev/service-name"
	// LabelNotForPrefix with the name of a zone marks an EndpointGroup that the
	// nodes of the zone need not see. A proxy watches with the selector "!" +
	// this + its zone, so a node of a new zone or without a zone sees all
	// groups.
	LabelNotForPrefix = "not-for.vicinity.dev/"
	// LabelHandOver marks the groups of a Service that kube-proxy still serves
	// too, or whose endpoints leave a domain for a ZoneShift. Proxies acknowledge
	// such groups once they have programmed them.
	LabelHandOver = "vicinity.dev/hand-over"
)

// EndpointGroup holds endpoints of a Service with the zones whose traffic they
// take. The controller writes it for vicinity-proxy, or for vicinity-dns if the
// Service is headless. Users do not write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=eg
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name="Family",type=string,JSONPath=`.spec.addressType`
// +kubebuilder:printcolumn:name="Consumers",type=string,JSONPath=`.spec.consumers`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type EndpointGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EndpointGroupSpec `json:"spec"`
}

// EndpointGroupList is a list of EndpointGroups.
//
// +kubebuilder:object:root=true
type EndpointGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EndpointGroup `json:"items"`
}

// EndpointGroupSpec describes a part of a Service's endpoints for a proxy. It
// has one writer.
//
// +structType=atomic
type EndpointGroupSpec struct {
	// service is the name of the Service, in the namespace of the group.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Service string `json:"service"`

	// addressType is the family of the addresses.
	//
	// +kubebuilder:validation:Enum=IPv4;IPv6
	AddressType corev1.IPFamily `json:"addressType"`

	// tiers are node labels in the order of preference, with "*" as the last
	// for anywhere. Each node uses the nearest tier that has endpoints, among
	// the endpoints that its zone may use. Without tiers it uses all of these.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=atomic
	// +optional
	Tiers []string `json:"tiers,omitempty"`

	// consumers are the zones that the endpoints are for. A node uses every
	// group that it sees, within the tiers. The exception is a localOnly group
	// that does not name the node's zone here, but has an endpoint at home in
	// that zone: of it the node uses only endpoints on itself. The label
	// not-for.vicinity.dev/ZONE hides a group from a zone.
	//
	// +kubebuilder:validation:MaxItems=1000
	// +listType=map
	// +listMapKey=zone
	// +optional
	Consumers []GroupConsumer `json:"consumers,omitempty"`

	// localOnly marks a group with endpoints whose home zone is not among the
	// consumers. Nodes of that zone still see the group, for traffic that must
	// stay on the node: local traffic policies and their health checks.
	//
	// +optional
	LocalOnly bool `json:"localOnly,omitempty"`

	// anyReady is true if any endpoint of the Service is ready, in any group.
	// If none is, endpoints that still serve while they terminate are used.
	//
	// +optional
	AnyReady bool `json:"anyReady"`

	// ports are the ports of the endpoints.
	//
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	// +optional
	Ports []GroupPort `json:"ports,omitempty"`

	// endpoints are sorted by address. The group has each address once.
	//
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	// +optional
	Endpoints []GroupEndpoint `json:"endpoints,omitempty"`

	// drained are addresses of the Service, with the ports of this group, that
	// other groups have: connections to them end, unless the node uses them for
	// new ones. A group with such addresses has no endpoints.
	//
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:Pattern=`^[0-9A-Fa-f.:]+$`
	// +listType=atomic
	// +optional
	Drained []string `json:"drained,omitempty"`
}

// GroupConsumer is a zone that uses a group.
type GroupConsumer struct {
	// zone is the value of the label topology.kubernetes.io/zone of the nodes.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone"`

	// weight is the weight of each endpoint of the group in the traffic of the
	// zone. The endpoints that serve the zone alone have 1000.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +kubebuilder:default=1000
	// +optional
	Weight int32 `json:"weight,omitempty"`
}

// GroupPort is a port of the endpoints of a group.
type GroupPort struct {
	// name is the name of the Service's port, empty if it has none.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// protocol is the protocol of the port.
	//
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	// +kubebuilder:default=TCP
	// +optional
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// port is the port number of the endpoints.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// GroupEndpoint is one endpoint.
type GroupEndpoint struct {
	// address is an IP address of the group's family.
	//
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f.:]+$`
	Address string `json:"address"`

	// zone is the zone of the endpoint, empty if it is unknown.
	//
	// +optional
	Zone string `json:"zone,omitempty"`

	// node is the node of the endpoint, empty if it is unknown.
	//
	// +optional
	Node string `json:"node,omitempty"`

	// notReady marks an endpoint that is not ready.
	//
	// +optional
	NotReady bool `json:"notReady,omitempty"`

	// notServing marks an endpoint that does not answer, whether it terminates
	// or not.
	//
	// +optional
	NotServing bool `json:"notServing,omitempty"`

	// terminating marks an endpoint that terminates.
	//
	// +optional
	Terminating bool `json:"terminating,omitempty"`

	// domains are the values of the tiers' labels on the endpoint's node,
	// without its zone and its name. An empty value takes the endpoint out of
	// the domain of its node: the nodes there would overload it, and use a
	// farther tier instead.
	//
	// +optional
	Domains map[string]string `json:"domains,omitempty"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RoutingPolicy decides how the traffic of Services stays near. It applies to
// the Services of its namespace that its selector matches, and to Services that
// name it in the annotation service.kubernetes.io/topology-mode:
// vicinity.dev/NAME.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rp
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Level",type=string,JSONPath=`.spec.level`
// +kubebuilder:printcolumn:name="Keys",type=string,JSONPath=`.spec.keys`,priority=1
// +kubebuilder:printcolumn:name="Algorithm",type=string,JSONPath=`.spec.algorithm`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RoutingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RoutingPolicySpec   `json:"spec"`
	Status RoutingPolicyStatus `json:"status,omitempty"`
}

// RoutingPolicyList is a list of RoutingPolicies.
//
// +kubebuilder:object:root=true
type RoutingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RoutingPolicy `json:"items"`
}

// Mode is how strictly a level applies.
//
// +kubebuilder:validation:Enum=Balanced;Prefer;Require
type Mode string

// Level is a kind of domain that Kubernetes itself knows.
//
// +kubebuilder:validation:Enum=Node;Zone;Region
type Level string

// The levels.
const (
	Node   Level = "Node"
	Zone   Level = "Zone"
	Region Level = "Region"
)

// Algorithm names a way to divide endpoints among zones.
//
// +kubebuilder:validation:Enum=optimal;flow;local;local-shared;local-weighted;local-opt
type Algorithm string

// Delivery is the way in which a plan reaches proxies.
//
// +kubebuilder:validation:Enum=Hints;Groups
type Delivery string

// The deliveries.
const (
	DeliveryHints  Delivery = "Hints"
	DeliveryGroups Delivery = "Groups"
)

// RoutingPolicySpec is the requested routing.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.keys) && self.keys.size() > 0 && has(self.mode))",message="mode cannot be given together with keys, which say by themselves what is preferred and what is required",fieldPath=".mode"
// +kubebuilder:validation:XValidation:rule="!(has(self.keys) && self.keys.size() > 0 && has(self.level))",message="level cannot be given together with keys, which name the places by themselves",fieldPath=".level"
type RoutingPolicySpec struct {
	// selector selects Services of the namespace that the policy applies to. An
	// empty one selects all. Without a selector, a RoutingPolicy applies only
	// to Services that name it, and a ClusterRoutingPolicy applies to all. If
	// several policies of a kind select a Service, the oldest applies, then the
	// first by name.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// mode is how strictly the level applies. Balanced spreads traffic over all
	// endpoints. Prefer keeps it near as long as no endpoint is overloaded.
	// Require never lets it leave, and needs vicinity-proxy. Without mode,
	// level and keys it defaults to Prefer, for the zone. If the Service
	// follows a RoutingPolicy, a spec.trafficDistribution of the Service
	// replaces the zone. Annotations of the Service replace mode, level and
	// keys.
	//
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// level is the place that mode is about: Zone, which is the default, Node or
	// Region. With the mode Prefer, a Node is followed by its zone.
	//
	// +optional
	Level Level `json:"level,omitempty"`

	// delivery is how plans reach proxies: Hints for any proxy, or Groups for
	// vicinity-proxy. It also applies to Services whose annotations say where
	// traffic goes, but not to those with the annotation vicinity.dev/proxy. The
	// default is Hints, or Groups with --groups-by-default of the controller.
	//
	// +optional
	Delivery Delivery `json:"delivery,omitempty"`

	// keys are node labels in the order of preference, instead of mode and
	// level. Traffic goes to the first kind of domain that it shares with an
	// endpoint. The last key may be "*" for anywhere. Without it, traffic that
	// shares no domain goes nowhere, which needs vicinity-proxy. An example is
	// [example.com/rack, topology.kubernetes.io/zone, "*"]. At most 16 are
	// allowed.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule="self == '*' || self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$') && self.indexOf('/') <= 253",messageExpression="'\"' + self + '\" is not a key that a node label can have, such as topology.kubernetes.io/zone'"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key != '*') || self.indexOf('*') == self.size() - 1",message="* matches everything and must be the last key"
	// +kubebuilder:validation:XValidation:rule="self.all(key, self.exists_one(other, other == key))",messageExpression="'\"' + self.filter(key, !self.exists_one(other, other == key))[0] + '\" is given twice; each key may appear once'"
	// +optional
	// +listType=atomic
	Keys []string `json:"keys,omitempty"`

	// algorithm decides which endpoints each zone may use. It has an effect
	// only where zones are preferred and something wider is allowed: with mode
	// Prefer and level Zone or Node, or with keys that have the zone and end in
	// "*" or the region. flow, local-weighted and local-opt need
	// vicinity-proxy. It defaults to flow for Services that vicinity-proxy
	// serves, and to optimal for others.
	//
	// +optional
	Algorithm Algorithm `json:"algorithm,omitempty"`

	// overloadThreshold is the load above its even share that no endpoint may
	// reach, as a percentage above 0 and at most 1000. If every plan would
	// reach it, traffic is balanced.
	//
	// +kubebuilder:default="50%"
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,4}([.][0-9]{1,2})?%$') && double(self.substring(0, self.size() - 1)) > 0.0 && double(self.substring(0, self.size() - 1)) <= 1000.0",message="must be a percentage above 0 and at most 1000, such as 50%"
	// +optional
	OverloadThreshold string `json:"overloadThreshold,omitempty"`

	// startingThreshold is how many endpoints a Service must have for them to
	// be divided among zones: a number such as 12, or one for each zone such as
	// "3x". The default of optimal and flow is none, since their plans keep the
	// overload threshold at any size; that of the others is "3x".
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : string(self).matches('^[0-9]{1,4}([.][0-9]{1,2})?x$')",messageExpression="type(self) != int && string(self).matches('^[0-9]+$') ? 'must be a number, which is written without quotes: ' + string(self) + ', or one for each zone, such as 3x' : 'must be a number of endpoints from 0 to 1000000, such as 12, or one for each zone, such as 3x'"
	// +optional
	StartingThreshold *intstr.IntOrString `json:"startingThreshold,omitempty"`

	// padding is how many endpoints a Service must be above or below the
	// starting threshold for its state to change, so that small changes of its
	// size change nothing. The default is 3 with a starting threshold, and 0
	// without.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Padding *int32 `json:"padding,omitempty"`

	// capacity is how the traffic from a zone is estimated.
	//
	// +kubebuilder:default={type: Nodes}
	// +optional
	Capacity Capacity `json:"capacity,omitempty"`

	// nodeSelector selects the nodes that count for a zone's capacity: the
	// nodes where clients run. Only ready nodes count, and control-plane nodes
	// only if they take pods. Without a selector all such nodes count.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// CapacityType is a way to estimate the traffic of a zone.
//
// +kubebuilder:validation:Enum=Nodes;CPU;Expression
type CapacityType string

// The types of capacity.
const (
	CapacityNodes      CapacityType = "Nodes"
	CapacityCPU        CapacityType = "CPU"
	CapacityExpression CapacityType = "Expression"
)

// Capacity is how the traffic of a zone is estimated.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Expression' || has(self.expression) && self.expression.size() > 0",message="must be given if type is Expression",fieldPath=".expression"
// +kubebuilder:validation:XValidation:rule="self.type == 'Expression' || !has(self.expression) || self.expression.size() == 0",message="has no effect unless type is Expression",fieldPath=".expression"
type Capacity struct {
	// type is Nodes for the number of nodes, CPU for their allocatable CPU, or
	// Expression for the result of expression.
	//
	// +kubebuilder:default=Nodes
	// +optional
	Type CapacityType `json:"type,omitempty"`

	// expression is in CEL and computes the capacity of one zone from the
	// variable zone. It has the strings zone.name and zone.region, the number
	// zone.nodes, and the resources that the nodes can give to pods: zone.cpu
	// in cores, zone.memory in bytes and zone.pods. The result must be a number
	// that is not negative; only its ratio between zones counts. The numbers
	// are decimal, so an example is zone.cpu + 2.0 * zone.nodes. If it fails
	// for a zone, nodes are counted instead.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Expression string `json:"expression,omitempty"`
}

// RoutingPolicyStatus is the controller's report on a policy.
type RoutingPolicyStatus struct {
	// observedGeneration is the generation that the rest of the status
	// describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// services is the number of Services that follow the policy.
	//
	// +optional
	Services int32 `json:"services"`

	// conditions has Accepted, which is False with a message if a part of the
	// policy has no effect.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Accepted is the condition of a RoutingPolicy that reports whether all of it
// has an effect.
const Accepted = "Accepted"

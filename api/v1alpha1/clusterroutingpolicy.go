package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterRoutingPolicy decides how the traffic of Services of many namespaces
// stays near. It applies where neither the Service's own settings nor a
// RoutingPolicy of its namespace decides.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=crp
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Level",type=string,JSONPath=`.spec.level`
// +kubebuilder:printcolumn:name="Keys",type=string,JSONPath=`.spec.keys`,priority=1
// +kubebuilder:printcolumn:name="Algorithm",type=string,JSONPath=`.spec.algorithm`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterRoutingPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterRoutingPolicySpec `json:"spec"`
	Status RoutingPolicyStatus      `json:"status,omitempty"`
}

// ClusterRoutingPolicyList is a list of ClusterRoutingPolicies.
//
// +kubebuilder:object:root=true
type ClusterRoutingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterRoutingPolicy `json:"items"`
}

// ClusterRoutingPolicySpec is the requested routing, and the namespaces that it
// applies to.
//
// +kubebuilder:validation:XValidation:rule="has(self.namespaceSelector)",message="must be given; an empty one, {}, chooses all namespaces",reason=FieldValueRequired,fieldPath=".namespaceSelector"
type ClusterRoutingPolicySpec struct {
	// namespaceSelector selects the namespaces that the policy applies to, by
	// their labels. An empty one selects all. It is required.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values",fieldPath=".matchExpressions"
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	RoutingPolicySpec `json:",inline"`
}

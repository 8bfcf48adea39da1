package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodLocator says where a pod is, for programs that know only the address of
// a client, such as a DNS server. It has the name of its pod. The controller
// writes it; users do not.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pl
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=`.ips`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.nodeName`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.nodeLabels.topology\.kubernetes\.io/zone`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodLocator struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// ips are the addresses of the pod, of one or two families.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:Pattern=`^[0-9A-Fa-f.:]+$`
	// +listType=atomic
	// +optional
	IPs []string `json:"ips,omitempty"`

	// nodeName is the node of the pod, empty if that node no longer exists.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// nodeLabels are the labels of the node that Services ask for or that an
	// administrator chose.
	//
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// podCreationTimestamp is the creation time of the pod. If two PodLocators
	// have one address, the younger pod counts. Without this field the age of
	// the PodLocator counts as the age of the pod.
	//
	// +optional
	PodCreationTimestamp *metav1.Time `json:"podCreationTimestamp,omitempty"`
}

// PodLocatorList is a list of PodLocators.
//
// +kubebuilder:object:root=true
type PodLocatorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodLocator `json:"items"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types of the package.
var GroupVersion = schema.GroupVersion{Group: "vicinity.dev", Version: "v1alpha1"}

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&RoutingPolicy{}, &RoutingPolicyList{},
		&ClusterRoutingPolicy{}, &ClusterRoutingPolicyList{},
		&EndpointGroup{}, &EndpointGroupList{},
		&PodLocator{}, &PodLocatorList{},
		&TopologyDisruptionBudget{}, &TopologyDisruptionBudgetList{},
		&DomainRollout{}, &DomainRolloutList{},
		&ZoneShift{}, &ZoneShiftList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

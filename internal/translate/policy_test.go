package translate

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// policy makes a RoutingPolicy of the namespace shop, born so many minutes after
// the start, from what a change makes of it.
func policy(name string, born int, changes ...func(*v1alpha1.RoutingPolicySpec)) *v1alpha1.RoutingPolicy {
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name,
		CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(time.Duration(born) * time.Minute)),
	}}
	for _, change := range changes {
		change(&p.Spec)
	}
	return p
}

type change = func(*v1alpha1.RoutingPolicySpec)

// web selects the Service of the tests.
func web(spec *v1alpha1.RoutingPolicySpec) {
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func keys(keys ...string) change {
	return func(spec *v1alpha1.RoutingPolicySpec) { spec.Keys = keys }
}

func mode(mode v1alpha1.Mode, level v1alpha1.Level) change {
	return func(spec *v1alpha1.RoutingPolicySpec) { spec.Mode, spec.Level = mode, level }
}

func capacity(by v1alpha1.CapacityType, expression string) change {
	return func(spec *v1alpha1.RoutingPolicySpec) {
		spec.Capacity = v1alpha1.Capacity{Type: by, Expression: expression}
	}
}

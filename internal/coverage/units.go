package coverage

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
)

// Units has, by the name of each PodGroup of a namespace, the set of pods that can only be disrupted together: the
// PodGroup itself if its disruption mode is all, or the outermost CompositePodGroup around it with that mode. PodGroups
// of v1alpha3 have the same shape.
func Units(groups []schedulingv1beta1.PodGroup, composites []schedulingv1alpha3.CompositePodGroup) map[string]string {
	above := make(map[string]*schedulingv1alpha3.CompositePodGroup, len(composites))
	for i := range composites {
		above[composites[i].Name] = &composites[i]
	}
	units := map[string]string{}
	for i := range groups {
		group := &groups[i]
		if mode := group.Spec.DisruptionMode; mode != nil && mode.All != nil {
			units[group.Name] = "PodGroup/" + group.Name
		}
		parent := group.Spec.ParentCompositePodGroupName
		for range len(composites) { // a circle ends, too
			if parent == nil || above[*parent] == nil {
				break
			}
			composite := above[*parent]
			if mode := composite.Spec.DisruptionMode; mode != nil && mode.All != nil {
				units[group.Name] = "CompositePodGroup/" + composite.Name
			}
			parent = composite.Spec.ParentCompositePodGroupName
		}
	}
	return units
}

package translate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Impossible says what is written on the Service and cannot be meant, each in a
// sentence that names the annotation. It is for admission, which refuses it; a Service
// that has it all the same is routed by RequestOf, without what cannot be.
func Impossible(service *corev1.Service) []string {
	list, given := service.Annotations[AnnotationTopologyKeys]
	if !given {
		return nil
	}
	tiers, err := ParseTopologyKeys(list)
	if err != nil {
		return []string{fmt.Sprintf("annotation %s: %v", AnnotationTopologyKeys, err)}
	}
	var faults []string
	if fault := localKeys(service, list); fault != "" {
		faults = append(faults, fault)
	}
	near, _ := nearness(written{service: service})
	if near.Source != "" && service.Annotations[AnnotationSameZone] != Balanced && !slices.Equal(near.Intent.Tiers, tiers) {
		faults = append(faults, fmt.Sprintf("annotation %s: %q contradicts %s, which means %q; remove one of them",
			AnnotationTopologyKeys, list, near.Source, near.Intent.Tiers))
	}
	return faults
}

// localKeys says that topology keys cannot be together with a local policy for
// external traffic, as in Kubernetes when a Service had such keys.
func localKeys(service *corev1.Service, list string) string {
	if service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return ""
	}
	return fmt.Sprintf("annotation %s: %q cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them",
		AnnotationTopologyKeys, list)
}

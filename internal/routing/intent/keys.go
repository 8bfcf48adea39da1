package intent

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// ParseTopologyKeys reads the value of v1alpha1.AnnotationTopologyKeys. Each key must be a
// valid label key.
func ParseTopologyKeys(list string) (topology.Tiers, error) {
	tiers, err := topology.ParseTiers(list)
	if err != nil {
		return nil, err
	}
	if err := validateKeys(tiers); err != nil {
		return nil, err
	}
	return tiers, nil
}

func validateKeys(tiers topology.Tiers) error {
	if err := tiers.Validate(); err != nil {
		return err
	}
	for _, key := range tiers {
		if key == topology.Anywhere {
			continue
		}
		if reasons := content.IsLabelKey(key); len(reasons) > 0 {
			return fmt.Errorf("topology keys: %q is not a label key: %s", key, strings.Join(reasons, "; "))
		}
	}
	return nil
}

// KeysOfService returns the topology keys that a Service names itself, without Anywhere, or nothing if they are
// invalid.
func KeysOfService(service *corev1.Service) []string {
	asked, _ := topologyKeys(written{service: service})
	return keysOf(asked.Intent.Tiers)
}

// Keys returns the topology keys that a policy names, without Anywhere.
func (p *Policy) Keys() []string { return keysOf(p.Intent.Tiers) }

func keysOf(tiers topology.Tiers) []string {
	return slices.DeleteFunc(slices.Clone([]string(tiers)), func(key string) bool { return key == topology.Anywhere })
}

// Impossible returns a sentence about each annotation that cannot be followed, including the policy that the Service
// names. Admission refuses them, and RequestOf ignores them.
func Impossible(service *corev1.Service, policies []*v1alpha1.RoutingPolicy) []string {
	faults := impossibleKeys(service)
	name, named := NamedPolicy(service)
	for _, policy := range policies {
		if !named || policy.Name != name || policy.Namespace != service.Namespace {
			continue
		}
		given := ofNamespace(policy)
		if fault := policyLocalKeys(service, &given); fault != "" {
			faults = append(faults, annotation(v1alpha1.AnnotationTopologyMode, v1alpha1.PolicyPrefix+name)+": "+fault)
		}
	}
	return faults
}

func impossibleKeys(service *corev1.Service) []string {
	asked, faults := topologyKeys(written{service: service})
	if asked.Source == "" {
		return faults
	}
	near, _ := nearness(written{service: service})
	if near.Source != "" && service.Annotations[v1alpha1.AnnotationSameZone] != v1alpha1.Balanced && !slices.Equal(near.Intent.Tiers, asked.Intent.Tiers) {
		faults = append(faults, fmt.Sprintf("%s contradicts %s, which means %q; remove one of them",
			asked.Source, near.Source, near.Intent.Tiers))
	}
	return faults
}

func writtenKeys(list string) string {
	return fmt.Sprintf("annotation %s: %q", v1alpha1.AnnotationTopologyKeys, list)
}

func policyLocalKeys(service *corev1.Service, policy *anyPolicy) string {
	if service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		return ""
	}
	read := policy.read()
	if read.Approach != ApproachKeys {
		return ""
	}
	return localKeys(service, read.Intent.Tiers, fmt.Sprintf("spec.keys of %s, %q,", policy, read.Intent.Tiers))
}

// localKeys returns a sentence if topology keys conflict with a local policy for external traffic, as they did in
// Kubernetes. The node alone, as a requirement, says the same as the policy.
func localKeys(service *corev1.Service, keys topology.Tiers, source string) string {
	if len(keys) == 0 || service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal ||
		slices.Equal(keys, topology.Tiers{topology.Hostname}) {
		return ""
	}
	return source + " cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; allowed beside it is " +
		topology.Hostname + " alone, otherwise remove one of them"
}

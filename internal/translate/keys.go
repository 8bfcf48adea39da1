package translate

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

// validateKeys checks tiers, including the syntax of their keys.
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

// KeysOfService are the topology keys that a Service names itself, but Anywhere. Values that are
// not allowed name none.
func KeysOfService(service *corev1.Service) []string {
	value, found := service.Annotations[v1alpha1.AnnotationTopologyKeys]
	if !found {
		return nil
	}
	tiers, err := ParseTopologyKeys(value)
	if err != nil {
		return nil
	}
	return keysOf(tiers)
}

// Keys are the topology keys that a policy names, but Anywhere.
func (p *Policy) Keys() []string { return keysOf(p.Intent.Tiers) }

func keysOf(tiers topology.Tiers) []string {
	return slices.DeleteFunc(slices.Clone([]string(tiers)), func(key string) bool { return key == topology.Anywhere })
}

package translate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

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

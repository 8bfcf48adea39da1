package proxy

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// compareNames orders names.
func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

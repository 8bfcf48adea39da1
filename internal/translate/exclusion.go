package translate

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exclusion says which Services' slices Vicinity never touches. The zero value is that of
// the API server alone.
type Exclusion struct {
	// Own is Vicinity's own namespace, empty if none is known.
	Own string
	// Namespaces are those that the administrator excludes.
	Namespaces []string
}

// DefaultExcluded are the namespaces that are excluded by default.
func DefaultExcluded() []string { return []string{metav1.NamespaceSystem} }

// apiService is the Service of the API server, which rewrites its slices itself.
const apiService = "kubernetes"

// Reason is why a Service is left alone, empty for most.
func (e Exclusion) Reason(namespace, service string) string {
	switch {
	case namespace == metav1.NamespaceDefault && service == apiService:
		return "the API server writes its slices"
	case namespace == e.Own && e.Own != "":
		return fmt.Sprintf("namespace %s is Vicinity's own", namespace)
	case slices.Contains(e.Namespaces, namespace):
		return fmt.Sprintf("namespace %s is excluded by --exclude-namespaces", namespace)
	}
	return ""
}

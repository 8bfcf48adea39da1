package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

const (
	proxyGuide     = "docs/proxy.md"
	proxyReference = "docs/reference/proxy.md"
	// renderedProxy is the chart with vicinity-proxy beside kube-proxy.
	renderedProxy = "lab/test/charts/testdata/proxy.yaml"
)

// section returns the part of a document below a heading.
func section(t *testing.T, document, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text(t, document), "\n## "+title+"\n")
	if !found {
		t.Fatalf("%s has no section %q", document, title)
	}
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

func TestOldestKernelIsDocumented(t *testing.T) {
	stated := regexp.MustCompile(`Linux (\d+\.\d+)\s+or\s+newer`)
	for _, document := range []string{proxyGuide, proxyReference} {
		match := stated.FindStringSubmatch(text(t, document))
		if match == nil || match[1] != kernel.MinimumKernel {
			t.Errorf("%s has %q, the proxy requires %s", document, match, kernel.MinimumKernel)
		}
	}
}

func TestPermissionsOfTheProxyAreDocumented(t *testing.T) {
	// Permissions of a proxy that serves all Services and removes a start-up taint.
	more := []rbacv1.PolicyRule{
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"patch"}},
	}
	want := append(describeRules("all namespaces", more), grantedRows(t, renderedProxy, "vicinity-proxy", "all namespaces")...)
	slices.Sort(want)
	var got []string
	row := regexp.MustCompile(`(?m)^(\| (?:all namespaces|own namespace) \| [^|]* \| [^|]* \|) [^|]* \|$`)
	for _, match := range row.FindAllStringSubmatch(section(t, proxyReference, "Permissions"), -1) {
		got = append(got, match[1])
	}
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nthe chart grants\n%s", proxyReference, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

package intent

import "testing"

func TestLeftAlone(t *testing.T) {
	excluding := Exclusion{Own: "vicinity", Namespaces: DefaultExcluded()}
	for _, test := range []struct {
		left               Exclusion
		namespace, service string
		want               string
	}{
		{excluding, "shop", "web", ""},
		{excluding, "shop", "kubernetes", ""},
		{excluding, "default", "web", ""},
		{excluding, "default", "kubernetes", "the API server writes its slices"},
		{excluding, "vicinity", "web", "namespace vicinity is Vicinity's own"},
		{excluding, "kube-system", "dns", "namespace kube-system is excluded by --exclude-namespaces"},
		{Exclusion{}, "default", "kubernetes", "the API server writes its slices"},
		{Exclusion{}, "kube-system", "dns", ""},
		{Exclusion{}, "", "web", ""},
		{Exclusion{Namespaces: []string{"a", "b"}}, "b", "web", "namespace b is excluded by --exclude-namespaces"},
	} {
		if got := test.left.Reason(test.namespace, test.service); got != test.want {
			t.Errorf("%+v of %s/%s: %q, want %q", test.left, test.namespace, test.service, got, test.want)
		}
	}
}

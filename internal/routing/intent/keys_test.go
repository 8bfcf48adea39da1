package intent

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestKeys(t *testing.T) {
	for value, want := range map[string]string{
		"rack.example/name,topology.kubernetes.io/zone,*": "rack.example/name topology.kubernetes.io/zone",
		"*":     "",
		"a b,*": "",
		"*,a":   "",
		"":      "",
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationTopologyKeys: value}}}
		if got := strings.Join(KeysOfService(service), " "); got != want {
			t.Errorf("%q names %q, want %q", value, got, want)
		}
	}
	policy := ReadPolicy(&v1alpha1.RoutingPolicy{Spec: v1alpha1.RoutingPolicySpec{Keys: []string{"rack.example/name", "*"}}})
	if got := policy.Keys(); !reflect.DeepEqual(got, []string{"rack.example/name"}) {
		t.Errorf("the policy names %q", got)
	}
}

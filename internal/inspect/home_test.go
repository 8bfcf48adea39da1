package inspect

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHome(t *testing.T) {
	in := func(namespace string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: "x"} }
	controller := &appsv1.Deployment{ObjectMeta: in("vicinity-system")}
	first, second := &appsv1.DaemonSet{ObjectMeta: in("a")}, &appsv1.DaemonSet{ObjectMeta: in("b")}
	for _, test := range []struct {
		controller *appsv1.Deployment
		proxies    []*appsv1.DaemonSet
		want       string
	}{
		{nil, nil, ""},
		{nil, []*appsv1.DaemonSet{second, first}, "a"},
		{controller, []*appsv1.DaemonSet{first}, "vicinity-system"},
		{controller, nil, "vicinity-system"},
	} {
		if got := Home(test.controller, test.proxies); got != test.want {
			t.Errorf("the namespace is %q, want %q", got, test.want)
		}
	}
}

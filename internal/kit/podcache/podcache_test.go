package podcache

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cached returns the cached form of a pod, and whether the cache has all pods.
func cached(t *testing.T, options cache.Options, pod *corev1.Pod) (kept *corev1.Pod, all bool) {
	t.Helper()
	if len(options.ByObject) != 1 {
		t.Fatalf("%d kinds are cached", len(options.ByObject))
	}
	for _, by := range options.ByObject {
		object, err := by.Transform(pod)
		if err != nil {
			t.Fatal(err)
		}
		return object.(*corev1.Pod), by.Field == nil
	}
	return nil, false
}

func aPod() *corev1.Pod {
	started := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1, 0),
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b", "vicinity.dev/deletion-cost": "-2", corev1.PodDeletionCost: "-2"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "n", NodeSelector: map[string]string{"disk": "fast"},
			Affinity:   &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{}},
			Containers: []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(5, 0), Message: "fine"},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Started: &started}},
		},
	}
}

// Features add their needs in any order, and the greatest counts.
func TestTheGreaterNeedWins(t *testing.T) {
	for name, needs := range map[string][]Need{
		"one":                    {Disruption},
		"the greater at last":    {Addresses, Disruption},
		"the smaller at last":    {Disruption, Addresses},
		"the same several times": {Disruption, Disruption},
	} {
		t.Run(name, func(t *testing.T) {
			options := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
			for _, need := range needs {
				Add(&options, need)
			}
			pod := aPod()
			kept, all := cached(t, options, pod)
			want := pod.DeepCopy()
			delete(want.Annotations, "a")
			want.Spec.Containers, want.Spec.Affinity.PodAffinity, want.Status.ContainerStatuses = nil, nil, nil
			want.Status.Conditions = want.Status.Conditions[:1]
			want.Status.Conditions[0].Message = ""
			if !all || !reflect.DeepEqual(kept, want) {
				t.Errorf("all pods: %t; kept is %+v, want %+v", all, kept, want)
			}
		})
	}
}

func TestAddressesAlone(t *testing.T) {
	var options cache.Options
	Add(&options, Addresses)
	kept, all := cached(t, options, aPod())
	if all || kept.Labels != nil || kept.Spec.NodeSelector != nil || kept.Status.Conditions != nil ||
		kept.Name != "web-0" || kept.Spec.NodeName != "n" || len(kept.Status.PodIPs) != 1 || kept.CreationTimestamp.IsZero() {
		t.Errorf("all pods: %t; kept is %+v", all, kept)
	}
}

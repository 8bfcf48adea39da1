package ordinal

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/kit/shell"
)

const zone = corev1.LabelTopologyZone

func node(name, in string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{zone: in, "disk": "ssd"}}}
	for _, c := range change {
		c(n)
	}
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func labelled(key string) func(*corev1.Node) { return func(n *corev1.Node) { n.Labels[key] = "" } }

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

// podOf is a pod of a StatefulSet with an ordinal.
func podOf(ordinal int, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "db-" + strconv.Itoa(ordinal), Labels: map[string]string{appsv1.PodIndexLabel: strconv.Itoa(ordinal)},
		Annotations:     map[string]string{v1alpha1.AnnotationSpreadOrdinals: zone},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: new(true)}},
	}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func claims(names ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, name := range names {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

func ephemeral(class ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		made := &corev1.PersistentVolumeClaimTemplate{}
		for _, name := range class {
			made.Spec.StorageClassName = &name
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: made}}})
	}
}

func terms(all ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: all}}}
	}
}

func judgeOf(objects ...client.Object) judge {
	live := fake.NewClientBuilder().WithObjects(objects...).Build()
	return judge{nodes: &shell.RecentNodes{Live: live, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Timeout: nodesTimeout}, live: live, log: logr.Discard()}
}

// patched applies a patch to a pod, as the API server does.
func patched(t *testing.T, pod *corev1.Pod, patch []byte) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if patch != nil {
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = decoded.Apply(text); err != nil {
			t.Fatal(err)
		}
	}
	made := new(corev1.Pod)
	if err := json.Unmarshal(text, made); err != nil {
		t.Fatal(err)
	}
	return made
}

// required has the zone that each required term names, "" for a term without one.
func required(pod *corev1.Pod) (zones []string) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		in := ""
		for _, e := range term.MatchExpressions {
			if e.Key == zone {
				in += strings.Join(e.Values, ",")
			}
		}
		zones = append(zones, in)
	}
	return zones
}

func TestPodsAreGivenADomain(t *testing.T) {
	var (
		a, b, c = node("n1", "a"), node("n2", "b"), node("n3", "c")
		ssd     = corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}}}}
		named   = corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n2"}}}}
		claim   = func(name, volume string, class ...string) *corev1.PersistentVolumeClaim {
			made := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
			for _, name := range class {
				made.Spec.StorageClassName = &name
			}
			return made
		}
		class = func(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
			return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, VolumeBindingMode: &mode}
		}
		waiting, atOnce = class("waiting", storagev1.VolumeBindingWaitForFirstConsumer), class("at-once", storagev1.VolumeBindingImmediate)
		spread          = func(change func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				c := corev1.TopologySpreadConstraint{TopologyKey: zone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: new(int32(3))}
				change(&c)
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{c}
			}
		}
		volume = func(name string, affinity *corev1.VolumeNodeAffinity) *corev1.PersistentVolume {
			return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{NodeAffinity: affinity}}
		}
		inB = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{named}}}
	)
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		objects []client.Object
		want    []string
		result  admission.Result
		warning string
	}{
		"the first":      {pod: podOf(0), objects: []client.Object{c, b, a}, want: []string{"a"}, result: admission.Changed},
		"the sixth":      {pod: podOf(5), objects: []client.Object{c, b, a}, want: []string{"c"}, result: admission.Changed},
		"other affinity": {pod: podOf(1, func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }), objects: []client.Object{a, b}, want: []string{"b"}, result: admission.Changed},
		"several terms": {
			pod: podOf(2, terms(ssd, named, corev1.NodeSelectorTerm{})), objects: []client.Object{a, b, c}, want: []string{"c", "c", ""}, result: admission.Changed,
		},
		"a node selector": {
			pod: podOf(1, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "hdd"} }),
			objects: []client.Object{a, node("n4", "b", func(n *corev1.Node) { n.Labels["disk"] = "hdd" }), node("n5", "c", func(n *corev1.Node) {
				n.Labels["disk"] = "hdd"
			})},
			want: []string{"c"}, result: admission.Changed,
		},
		"a cordoned zone": {pod: podOf(4), objects: []client.Object{a, node("n2", "b", cordoned), c}, want: []string{"a"}, result: admission.Changed},
		"a tainted zone": {
			pod: podOf(1), objects: []client.Object{a, node("n2", "b", tainted("gpu", corev1.TaintEffectNoExecute)), c}, want: []string{"c"}, result: admission.Changed,
		},
		"a taint that is tolerated": {
			pod: podOf(1, func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
			}),
			objects: []client.Object{a, node("n2", "b", tainted("gpu", corev1.TaintEffectNoSchedule)), c}, want: []string{"b"}, result: admission.Changed,
		},
		"zones of the control plane": {
			pod: podOf(1),
			objects: []client.Object{
				node("n0", "0", labelled(v1alpha1.LabelControlPlane), tainted("other", corev1.TaintEffectNoSchedule), tainted(v1alpha1.LabelControlPlane, corev1.TaintEffectNoSchedule)),
				node("n9", "1", labelled("node-role.kubernetes.io/etcd"), tainted("CriticalAddonsOnly", corev1.TaintEffectNoExecute)), a, b,
			},
			want: []string{"b"}, result: admission.Changed,
		},
		"no usable domain": {pod: podOf(1), objects: []client.Object{node("n1", "a", cordoned)}, warning: "none of the 1 domains by the node label " + zone},
		"a bad value":      {pod: podOf(1, func(p *corev1.Pod) { p.Annotations[v1alpha1.AnnotationSpreadOrdinals] = "a/b/c" }), objects: []client.Object{a}, warning: `"a/b/c" is not a label key`},
		"a volume in one domain": {
			pod: podOf(0, claims("scratch", "data")), objects: []client.Object{a, b, claim("scratch", "", "at-once"), atOnce, claim("data", "v"), volume("v", inB)}, result: admission.Unchanged,
		},
		"a volume with the label of a zone": {
			pod: podOf(0, claims("data")), objects: []client.Object{a, b, claim("data", "v"), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: map[string]string{zone: "b"}},
			}}, result: admission.Unchanged,
		},
		"a claim that is bound where the pod goes": {
			pod: podOf(1, claims("data")), objects: []client.Object{a, b, waiting, claim("data", "", "waiting")}, want: []string{"b"}, result: admission.Changed,
		},
		"a claim whose volume is made for a node": {
			pod: podOf(1, claims("data")), objects: []client.Object{a, b, waiting, func() client.Object {
				c := claim("data", "", "waiting")
				c.Annotations = map[string]string{selectedNode: "n1"}
				return c
			}()}, result: admission.Unchanged,
		},
		"a claim that is bound at once": {
			pod: podOf(1, claims("data")), objects: []client.Object{a, b, atOnce, claim("data", "", "at-once")}, warning: "volume data may be provisioned in another domain before the pod has a node",
		},
		"an ephemeral volume that is bound at once": {pod: podOf(1, ephemeral("at-once")), objects: []client.Object{a, b, atOnce}, warning: "volume data may be provisioned in another domain"},
		"a spread over domains enough":              {pod: podOf(1, spread(func(*corev1.TopologySpreadConstraint) {})), objects: []client.Object{a, b}, warning: "the spread constraint by " + zone + " has minDomains"},
		"a spread over all domains": {
			pod: podOf(1, spread(func(c *corev1.TopologySpreadConstraint) { c.NodeAffinityPolicy = new(corev1.NodeInclusionPolicyIgnore) })), objects: []client.Object{a, b},
			want: []string{"b"}, result: admission.Changed,
		},
		"a claim to come":        {pod: podOf(1, claims("data")), objects: []client.Object{a, b}, want: []string{"b"}, result: admission.Changed},
		"of a ReplicaSet":        {pod: podOf(1, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" }), objects: []client.Object{a}, result: admission.Skipped},
		"without the annotation": {pod: podOf(1, func(p *corev1.Pod) { p.Annotations = nil }), objects: []client.Object{a}, result: admission.Skipped},
		"without an ordinal":     {pod: podOf(1, func(p *corev1.Pod) { p.Labels = nil }), objects: []client.Object{a}, result: admission.Skipped},
		"with a node":            {pod: podOf(1, func(p *corev1.Pod) { p.Spec.NodeName = "n1" }), objects: []client.Object{a}, result: admission.Skipped},
	} {
		t.Run(name, func(t *testing.T) {
			before := required(test.pod)
			verdict, err := judgeOf(test.objects...).judge(t.Context(), admission.Write[corev1.Pod]{Object: test.pod, Namespace: "shop"})
			if err != nil || verdict.Result != test.result || (len(verdict.Warnings) > 0) != (test.warning != "") {
				t.Fatalf("%+v, %v", verdict, err)
			}
			if test.warning != "" && !strings.Contains(verdict.Warnings[0], test.warning) {
				t.Errorf("the warning is %q, want %q", verdict.Warnings[0], test.warning)
			}
			if test.want == nil && verdict.Patch != nil {
				t.Errorf("the patch is %s", verdict.Patch)
			}
			if !slices.Equal(required(test.pod), before) {
				t.Error("the pod itself was changed")
			}
			if got := required(patched(t, test.pod, verdict.Patch)); !slices.Equal(got, test.want) {
				t.Errorf("the zones are %q, want %q", got, test.want)
			}
		})
	}
}

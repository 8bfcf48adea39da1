package charts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/test/rig"
)

const (
	policyOfAbandoned = "vicinity-controller-abandoned-pods"
	policyOfTemplates = "vicinity-controller-templates"
	policyOfScales    = "vicinity-controller-scales"
	policyOfSurges    = "vicinity-controller-deployments"
)

// Pods of the test are never ready, except the one whose status the test writes.
const rolledOut = `
apiVersion: v1
kind: Pod
metadata: {name: unmarked, labels: {controller-revision-hash: bad}}
spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other, labels: {controller-revision-hash: good}, annotations: {vicinity.dev/abandoned-revision: bad}}
spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ready, labels: {controller-revision-hash: bad}, annotations: {vicinity.dev/abandoned-revision: bad}}
spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: unready, labels: {controller-revision-hash: bad}, annotations: {vicinity.dev/abandoned-revision: bad}}
spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: held}
spec: {schedulingGates: [{name: vicinity.dev/rollout}, {name: example.com/quota}], containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: foreign}
spec: {schedulingGates: [{name: example.com/quota}], containers: [{name: web, image: web}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: db}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {schedulingGates: [{name: vicinity.dev/rollout}], containers: [{name: web, image: web}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: rolling}
spec:
  replicas: 0
  selector: {matchLabels: {app: other}}
  template: {metadata: {labels: {app: other}}, spec: {containers: [{name: web, image: web}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 0
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: OnDelete}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: web, image: web}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: rolling}
spec:
  replicas: 2
  selector: {matchLabels: {app: rolling}}
  template: {metadata: {labels: {app: rolling}}, spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: db}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {type: OnDelete}
  template: {metadata: {labels: {app: agent}}, spec: {nodeSelector: {none: none}, containers: [{name: web, image: web}]}}
`

// released is the patch that releases the held pod.
const released = `{"op":"remove","path":"/spec/schedulingGates/0"},{"op":"add","path":"/spec/nodeSelector","value":{"zone":"a"}},` +
	`{"op":"add","path":"/metadata/annotations","value":{"vicinity.dev/released-for":"web-1"}}`

// onRollouts deletes, restores and scales down as the controller, within its rights and beyond
// them.
func onRollouts(t *testing.T, c rig.ControlPlane) {
	ctx, controller := t.Context(), as(t, c, own)
	shop, err := c.MakeNamespace(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	c.Make(shop, rolledOut)
	ready := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := c.CoreV1().Pods(shop).Patch(ctx, "ready", types.StrategicMergePatchType, []byte(ready), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	remove := func(name string, byUID bool, dryRun ...string) error {
		options := metav1.DeleteOptions{DryRun: dryRun}
		pod, err := controller.CoreV1().Pods(shop).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if byUID {
			options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		}
		return controller.CoreV1().Pods(shop).Delete(ctx, name, options)
	}
	patch := func(kind, name, body string, dryRun ...string) error {
		request := controller.AppsV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(shop).Resource(kind).Name(name)
		for _, value := range dryRun {
			request.Param("dryRun", value)
		}
		return request.Body([]byte(body)).Do(ctx).Error()
	}
	release := func(name, operations string, dryRun ...string) error {
		_, err := controller.CoreV1().Pods(shop).Patch(ctx, name, types.JSONPatchType, []byte("["+operations+"]"), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	c.Await("the rights to be known", func(context.Context) (string, error) {
		for policy, err := range map[string]error{
			policyOfAbandoned: remove("unmarked", true, metav1.DryRunAll),
			policyOfTemplates: patch("daemonsets", "db", `{"metadata":{"labels":{"v":"2"}}}`, metav1.DryRunAll),
			policyOfScales:    patch("statefulsets", "db", `{"spec":{"replicas":1}}`, metav1.DryRunAll),
			policyOfSurges:    patch("deployments", "rolling", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`, metav1.DryRunAll),
			policyOfPods:      release("held", `{"op":"remove","path":"/spec/schedulingGates/1"}`, metav1.DryRunAll),
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policy) {
				return fmt.Sprint(err), nil
			}
		}
		return "", nil
	})
	for _, test := range []struct {
		what   string
		err    error
		policy string
	}{
		{"a pod of another revision is deleted", remove("other", true), policyOfAbandoned},
		{"a pod that is ready is deleted", remove("ready", true), policyOfAbandoned},
		{"a pod is deleted by name alone", remove("unready", false), policyOfAbandoned},
		{"a pod that is not ready is deleted", remove("unready", true), ""},
		{"a template is written", patch("statefulsets", "db", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`), ""},
		{"a template is written", patch("daemonsets", "db", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`), ""},
		{"a label is written", patch("daemonsets", "db", `{"metadata":{"labels":{"v":"2"}}}`), policyOfTemplates},
		{"a strategy is written", patch("daemonsets", "db", `{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), policyOfTemplates},
		{"a template without OnDelete is written", patch("statefulsets", "rolling", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`), policyOfTemplates},
		{"a template and replicas are written", patch("statefulsets", "db", `{"spec":{"replicas":1,"template":{"metadata":{"labels":{"v":"3"}}}}}`), policyOfTemplates},
		{"ordinals are written with a template", patch("statefulsets", "db", `{"spec":{"ordinals":{"start":5},"template":{"metadata":{"labels":{"v":"3"}}}}}`), policyOfTemplates},
		{"what becomes of volumes is written with a template", patch("statefulsets", "db", `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"},"template":{"metadata":{"labels":{"v":"3"}}}}}`), policyOfTemplates},
		{"a history limit is written", patch("daemonsets", "db", `{"spec":{"revisionHistoryLimit":0}}`), policyOfTemplates},
		{"more replicas are written", patch("statefulsets", "rolling", `{"spec":{"replicas":3}}`), policyOfScales},
		{"a strategy is written", patch("statefulsets", "rolling", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":1}}}}`), policyOfScales},
		{"a foreign annotation is written", patch("statefulsets", "rolling", `{"metadata":{"annotations":{"example.com/a":"b"}}}`), policyOfScales},
		{"fewer replicas are written", patch("statefulsets", "rolling", `{"metadata":{"annotations":{"vicinity.dev/wanted-replicas":"0"}},"spec":{"replicas":1}}`), ""},
		{"the gate of another owner is taken away", release("foreign", `{"op":"remove","path":"/spec/schedulingGates/0"}`), policyOfPods},
		{"both gates are taken away", release("held", `{"op":"remove","path":"/spec/schedulingGates"}`), policyOfPods},
		{"a held pod gets a place and stays held", release("held", `{"op":"add","path":"/spec/nodeSelector","value":{"zone":"a"}}`), policyOfPods},
		{"a held pod is released with another image", release("held", released+`,{"op":"replace","path":"/spec/containers/0/image","value":"other"}`), policyOfPods},
		{"a held pod is released with a toleration", release("held", released+`,{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}`), policyOfPods},
		{"a held pod is released with an affinity", release("held", released+`,{"op":"add","path":"/spec/affinity","value":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"b","operator":"Exists"}]}]}}}}`), policyOfPods},
		{"a held pod is released into a domain", release("held", released), ""},
		{"a template is written", patch("deployments", "db", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`), ""},
		{"a template without the gate is written", patch("deployments", "db", `{"spec":{"template":{"spec":{"schedulingGates":null}}}}`), policyOfSurges},
		{"a template and a strategy are written", patch("deployments", "db", `{"spec":{"paused":true,"template":{"metadata":{"labels":{"v":"3"}}}}}`), policyOfSurges},
		{"a template whose pods are not held is written", patch("deployments", "rolling", `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`), policyOfSurges},
		{"more replicas of a Deployment are written", patch("deployments", "db", `{"spec":{"replicas":3}}`), policyOfScales},
	} {
		judged(t, test.what, test.err, test.policy)
	}
	if err := controller.CoreV1().Pods(shop).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}); err != nil {
		t.Errorf("a pod is not evicted: %v", err)
	}
	if pods, err := c.CoreV1().Pods(shop).List(ctx, metav1.ListOptions{}); err != nil || !hasPods(pods, "other", "ready", "unmarked") {
		t.Errorf("the pods that stay are %v, %v", pods, err)
	}
}

func hasPods(list *corev1.PodList, names ...string) bool {
	found := map[string]bool{}
	for i := range list.Items {
		found[list.Items[i].Name] = true
	}
	for _, name := range names {
		if !found[name] {
			return false
		}
	}
	return true
}

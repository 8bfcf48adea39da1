package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/kube"
	"vicinity.dev/vicinity/test/rig"
)

// evictable is a control plane with nodes whose pods are ready at once.
type evictable struct {
	rig.ControlPlane
	namespace string
}

// Where pods run.
const (
	onFakeNodes = `nodeSelector: {lab.vicinity.dev/fake: "true"}`
	// onSilentNode has no kubelet, so the test writes the status of pods.
	onSilentNode = `nodeName: silent`
	nowhere      = `nodeSelector: {example.com/nowhere: "true"}`
)

// run makes pods of a Deployment, and waits until they are ready if something runs them.
func (c *evictable) run(replicas int, place string) {
	c.Helper()
	c.Make(c.namespace, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
    spec:
      %s
      containers: [{name: main, image: none}]
`, replicas, place))
	c.Await("the pods", func(ctx context.Context) (string, error) {
		pods, err := c.pods(ctx)
		if err != nil || len(pods) != replicas {
			return fmt.Sprintf("%d of %d pods", len(pods), replicas), err
		}
		for i := range pods {
			if place == onFakeNodes && !kube.PodReady(&pods[i]) {
				return fmt.Sprintf("%s is %s", pods[i].Name, pods[i].Status.Phase), nil
			}
		}
		return "", nil
	})
}

// unready makes all pods run without being ready.
func (c *evictable) unready() {
	c.Helper()
	pods, err := c.pods(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	const patch = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}]}}`
	for i := range pods {
		if _, err := c.CoreV1().Pods(c.namespace).Patch(c.Context(), pods[i].Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *evictable) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := c.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// guard makes a PodDisruptionBudget, and waits until Kubernetes has counted its pods.
func (c *evictable) guard(name, spec string, expected, healthy int) {
	c.Helper()
	c.Make(c.namespace, fmt.Sprintf("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %s}\nspec: {selector: {matchLabels: {app: web}}, %s}\n", name, spec))
	c.Await("the numbers of "+name, func(ctx context.Context) (string, error) {
		pdb, err := c.PolicyV1().PodDisruptionBudgets(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if pdb.Status.ObservedGeneration != pdb.Generation || int(pdb.Status.ExpectedPods) != expected || int(pdb.Status.CurrentHealthy) != healthy {
			return fmt.Sprintf("%+v", pdb.Status), nil
		}
		return "", nil
	})
}

// explained returns the answer of explain about a pod.
func (c *evictable) explained(pod string) *inspect.PodExplanation {
	c.Helper()
	var out, errs bytes.Buffer
	root := newExplainCommand(command.Streams{Out: &out, Err: &errs}, func(*clusterFlags) (*connection, error) {
		return newConnection(c.Config(), c.namespace)
	}, thisMachine())
	root.SetOut(&out)
	root.SetErr(&errs)
	if code := command.Execute(c.Context(), root, []string{"pod/" + pod, "-o", "json"}); code != 0 {
		c.Fatalf("code %d: %s", code, &errs)
	}
	var e inspect.PodExplanation
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		c.Fatal(err)
	}
	return &e
}

// answered returns the answer of Kubernetes to a dry run.
func (c *evictable) answered(pod string) (inspect.Verdict, error) {
	err := c.PolicyV1().Evictions(c.namespace).Evict(c.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return inspect.VerdictAllowed, nil
	case apierrors.IsTooManyRequests(err):
		return inspect.VerdictRefused, nil
	case errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError:
		return inspect.VerdictFails, nil
	}
	return "", err
}

// TestExplainPodAgreesWithKubernetes compares explain with Kubernetes' answers to evictions of pods
// under PodDisruptionBudgets.
func TestExplainPodAgreesWithKubernetes(t *testing.T) {
	plane := rig.Start(t)
	plane.Make("", "{apiVersion: v1, kind: Node, metadata: {name: silent}}")
	for _, test := range []struct {
		name    string
		prepare func(*evictable)
		want    inspect.Verdict
	}{
		{"no budget", func(c *evictable) { c.run(3, onFakeNodes) }, inspect.VerdictAllowed},
		{"enough", func(c *evictable) {
			c.run(3, onFakeNodes)
			c.guard("web", "maxUnavailable: 1", 3, 3)
		}, inspect.VerdictAllowed},
		{"none allowed", func(c *evictable) {
			c.run(3, onFakeNodes)
			c.guard("web", "maxUnavailable: 0", 3, 3)
		}, inspect.VerdictRefused},
		{"not ready", func(c *evictable) {
			c.run(2, onSilentNode)
			c.unready()
			c.guard("web", "maxUnavailable: 1", 2, 0)
		}, inspect.VerdictRefused},
		{"not ready, always allowed", func(c *evictable) {
			c.run(2, onSilentNode)
			c.unready()
			c.guard("web", "maxUnavailable: 0, unhealthyPodEvictionPolicy: AlwaysAllow", 2, 0)
		}, inspect.VerdictAllowed},
		{"pending", func(c *evictable) {
			c.run(2, nowhere)
			c.guard("web", "maxUnavailable: 0", 2, 0)
		}, inspect.VerdictAllowed},
		{"two budgets", func(c *evictable) {
			c.run(3, onFakeNodes)
			c.guard("web", "maxUnavailable: 1", 3, 3)
			c.guard("more", "maxUnavailable: 1", 3, 3)
		}, inspect.VerdictFails},
		{"a budget that is not enforced", func(c *evictable) {
			c.run(3, onFakeNodes)
			c.Make(c.namespace, "apiVersion: vicinity.dev/v1alpha1\nkind: TopologyDisruptionBudget\nmetadata: {name: web}\nspec: {selector: {matchLabels: {app: web}}, maxUnavailable: 0}\n")
		}, inspect.VerdictAllowed},
	} {
		t.Run(test.name, func(t *testing.T) {
			namespace, err := plane.MakeNamespace(t.Context(), "explain")
			if err != nil {
				t.Fatal(err)
			}
			c := &evictable{plane.For(t), namespace}
			test.prepare(c)
			pods, err := c.pods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e := c.explained(pods[0].Name)
			answer, err := c.answered(pods[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			if e.Verdict != answer || answer != test.want {
				t.Errorf("explain says %s (%s), Kubernetes %s; want %s", e.Verdict, e.Why, answer, test.want)
			}
		})
	}
	t.Run("the scale of an owner of another kind", func(t *testing.T) {
		namespace, err := plane.MakeNamespace(t.Context(), "explain")
		if err != nil {
			t.Fatal(err)
		}
		c := &evictable{plane.For(t), namespace}
		c.scaledOwner()
		e := c.explained("orders-0")
		if len(e.Budgets) != 1 || e.Budgets[0].Total == nil || e.Budgets[0].Total.Expected != 4 {
			t.Errorf("want 4 pods expected: %+v", e)
		}
	})
}

// scaledOwner makes a kind with a scale, an object of it with four replicas, and one of its pods under
// a budget.
func (c *evictable) scaledOwner() {
	c.Helper()
	const database = "apiVersion: db.example.com/v1\nkind: Database\nmetadata: {name: orders}\nspec: {replicas: 4}\n"
	c.Make("", `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.db.example.com}
spec:
  group: db.example.com
  scope: Namespaced
  names: {kind: Database, plural: databases, singular: database}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
`)
	uid := ""
	c.Await("the Database", func(ctx context.Context) (string, error) {
		if err := c.Apply(ctx, c.namespace, database); err != nil {
			return err.Error(), nil // the kind is not served yet
		}
		text, err := c.CoreV1().RESTClient().Get().AbsPath("/apis/db.example.com/v1/namespaces/" + c.namespace + "/databases/orders").DoRaw(ctx)
		if err != nil {
			return "", err
		}
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(text, &object); err != nil {
			return "", err
		}
		uid = string(object.UID)
		return "", nil
	})
	c.Make(c.namespace, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: orders-0
  labels: {app: orders}
  ownerReferences: [{apiVersion: db.example.com/v1, kind: Database, name: orders, uid: %s, controller: true}]
spec: {%s, containers: [{name: main, image: none}]}
---
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: orders}
spec: {selector: {matchLabels: {app: orders}}, maxUnavailable: 1}
`, uid, onFakeNodes))
	c.Await("the pod", func(ctx context.Context) (string, error) {
		pod, err := c.CoreV1().Pods(c.namespace).Get(ctx, "orders-0", metav1.GetOptions{})
		if err != nil || kube.PodReady(pod) {
			return "", err
		}
		return string(pod.Status.Phase), nil
	})
}

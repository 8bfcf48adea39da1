package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

const ofCloneSet = "CloneSet"

// cloneSets is a CRD of the shape of OpenKruise's CloneSet, as far as DomainRollouts and its controller need it.
const cloneSets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clonesets.apps.kruise.io}
spec:
  group: apps.kruise.io
  scope: Namespaced
  names: {kind: CloneSet, listKind: CloneSetList, plural: clonesets, singular: cloneset}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.labelSelector}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, format: int32}
              selector: {type: object, x-kubernetes-preserve-unknown-fields: true}
              template: {type: object, x-kubernetes-preserve-unknown-fields: true}
              updateStrategy:
                type: object
                properties:
                  type: {type: string}
                  paused: {type: boolean}
                  partition: {x-kubernetes-int-or-string: true}
          status:
            type: object
            properties:
              observedGeneration: {type: integer, format: int64}
              replicas: {type: integer, format: int32}
              labelSelector: {type: string}
              updateRevision: {type: string}
`

// rolledCustom updates a workload of a kind that the controller does not know, after it got the documented rights. Then it scales the
// workload down within a budget.
func rolledCustom(ctx context.Context, s *scene) (figure string, err error) {
	page := must(os.ReadFile(root + "/docs/rollouts.md"))
	role := must(documentedBlock(string(page), "yaml", "# custom: ClusterRole"))
	check(s.ApplyCRDsOf(ctx, []string{cloneSets}))
	defer undo(&err, func() error {
		ctx := context.WithoutCancel(ctx)
		return errors.Join(s.Delete(ctx, "", role), s.Delete(ctx, "", cloneSets))
	})
	r := &rolled{Field: s.field(), kind: ofCloneSet, name: "db", pods: 9}
	workload := strings.NewReplacer("apps/v1", "apps.kruise.io/v1alpha1", "kind: StatefulSet", "kind: CloneSet", "  serviceName: db\n", "", "  podManagementPolicy: Parallel\n", "", "{type: OnDelete}", "{paused: true}").
		Replace(workloadOf(ofStatefulSet))
	rollout := fmt.Sprintf(`---
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: db}
spec:
  targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: db}
  topologyKey: topology.kubernetes.io/zone
  order: [%s]
  maxUnavailable: 2
`, r.Zones()[1])
	check(r.Apply(ctx, r.Namespace, workload+rollout))
	var cloner sync.WaitGroup
	cloning, stop := context.WithCancel(ctx)
	var failed error
	cloner.Go(func() { failed = r.cloneUntilEnd(cloning) })
	defer undo(&err, func() error { stop(); cloner.Wait(); return failed })
	check(r.waitHealthy(ctx))
	refused := must(r.waitUntil(ctx, "refused for a missing right", func(d *v1alpha1.DomainRollout) bool {
		valid := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionValid)
		return valid != nil && valid.Reason == "NotPermitted"
	}))
	check(s.Apply(ctx, "", role))
	must(r.waitPhase(ctx, v1alpha1.PhaseComplete))
	o := must(r.observe(ctx))
	defer o.stop()
	check(errors.Join(r.update(ctx, "2", "500ms", ""), r.waitComplete(ctx, "2")))
	found := o.since()
	check(found.within(2, r.inOrder()...))
	refusal := must(r.shrinkPaced(ctx))
	return fmt.Sprintf("a CloneSet by zones %v, %d pods of one zone down at most; before it got the rights: %s; scaled down beyond its budget: %s",
		found.order, found.most, refused.Status.WaitingFor, refusal), nil
}

// shrinkPaced scales the CloneSet down by more pods than its budget allows, which is refused, and then by one.
func (r *rolled) shrinkPaced(ctx context.Context) (refusal string, err error) {
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.PaceScaleDown, v1alpha1.PaceDeny)
	if _, err := r.CoreV1().Namespaces().Patch(ctx, r.Namespace, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		return "", err
	}
	if err := r.Apply(ctx, r.Namespace, evictions.ByZone("db", "app", "db", "maxUnavailable: 1")); err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "a scale-down to be refused", func(ctx context.Context) (string, error) {
		err := r.patchCloneSet(ctx, `{"spec":{"replicas":2}}`, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "scale")
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "asked for 2") {
			return fmt.Sprintf("the answer is %v", err), nil
		}
		refusal = err.Error()
		return "", nil
	})
	if err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "one pod to be removed", func(ctx context.Context) (string, error) {
		return "", r.patchCloneSet(ctx, `{"spec":{"replicas":8}}`, metav1.PatchOptions{}, "scale")
	})
	r.pods = 8
	return refusal, errors.Join(err, r.waitHealthy(ctx))
}

// cloneUntilEnd is a small controller of the CloneSet. It returns the last error, if the context ends during one.
func (r *rolled) cloneUntilEnd(ctx context.Context) (err error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if last := r.clone(ctx); ctx.Err() == nil {
			err = last
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// clone creates the pods that the CloneSet lacks from its present template, with random names, and reports its revision.
func (r *rolled) clone(ctx context.Context) error {
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": ofCloneSet}}
	resource, err := r.Resource(set, r.Namespace)
	if err != nil {
		return err
	}
	if set, err = resource.Get(ctx, r.name, metav1.GetOptions{}); err != nil {
		return err
	}
	raw, _, err := unstructured.NestedMap(set.Object, "spec", "template")
	if err != nil {
		return err
	}
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template); err != nil {
		return err
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return err
	}
	hash := fnv.New32a()
	fmt.Fprint(hash, string(text))
	revision := fmt.Sprintf("%s-%08x", r.name, hash.Sum32())
	list, err := r.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + r.name})
	if err != nil {
		return err
	}
	list.Items = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	pods := int64(len(list.Items))
	replicas, _, err := unstructured.NestedInt64(set.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	if pods > replicas {
		return r.removeCheapest(ctx, list.Items)
	}
	for ; pods < replicas; pods++ {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.GenerateName = r.name + "-"
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, set.GroupVersionKind())}
		if _, err := r.CoreV1().Pods(r.Namespace).Create(ctx, pod.DeepCopy(), metav1.CreateOptions{FieldManager: kube.FieldManager}); err != nil {
			return err
		}
	}
	observed, _, _ := unstructured.NestedInt64(set.Object, "status", "observedGeneration")
	if before, _, _ := unstructured.NestedString(set.Object, "status", "updateRevision"); before == revision && observed == set.GetGeneration() {
		return nil
	}
	set.Object["status"] = map[string]any{"observedGeneration": set.GetGeneration(), "replicas": pods, "labelSelector": "app=" + r.name, "updateRevision": revision}
	_, err = resource.UpdateStatus(ctx, set, metav1.UpdateOptions{FieldManager: kube.FieldManager})
	return err
}

// removeCheapest deletes the pod with the lowest deletion cost, if that is negative: the webhook marks the reserved pods so.
func (r *rolled) removeCheapest(ctx context.Context, pods []corev1.Pod) error {
	for i := range pods {
		if cost, err := strconv.Atoi(pods[i].Annotations[corev1.PodDeletionCost]); err == nil && cost < 0 {
			return r.CoreV1().Pods(r.Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{})
		}
	}
	return errors.New("no pod has a deletion cost below 0")
}

// patchCloneSet applies a merge patch to the CloneSet or a subresource.
func (r *rolled) patchCloneSet(ctx context.Context, patch string, options metav1.PatchOptions, subresources ...string) error {
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": ofCloneSet}}
	resource, err := r.Resource(set, r.Namespace)
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, r.name, types.MergePatchType, []byte(patch), options, subresources...)
	return err
}

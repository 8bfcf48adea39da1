package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// replacesByItself turns a manifest of workloadOf into one of a workload that needs no DomainRollout.
var replacesByItself = strings.NewReplacer(
	"updateStrategy: {type: OnDelete}", "updateStrategy: {type: RollingUpdate}",
	"rollingUpdate: {maxUnavailable: 0, maxSurge: 3}", "rollingUpdate: {maxUnavailable: 2, maxSurge: 3}",
	"      schedulingGates: [{name: vicinity.dev/rollout}]\n", "",
)

// adoptedWorkloads has workloads updated by domain with one command, and gives back their fields with another.
func adoptedWorkloads(ctx context.Context, s *scene) (string, error) {
	err := s.withEach(ctx, func(ctx context.Context, part *scene, kind string) error {
		r := &rolled{Field: part.field(), kind: kind, name: "db", pods: 9}
		if err := errors.Join(r.Apply(ctx, r.Namespace, replacesByItself.Replace(workloadOf(kind))), r.waitHealthy(ctx)); err != nil {
			return err
		}
		before, _, err := r.fields(ctx)
		if err != nil {
			return err
		}
		if err := part.adoptAndUpdate(ctx, r); err != nil {
			return err
		}
		if _, err := part.vicinity(ctx, "rollout", "adopt", "-n", r.Namespace, "--undo", "--apply"); err != nil {
			return err
		}
		after, _, err := r.fields(ctx)
		if err == nil && after != before {
			err = fmt.Errorf("after --undo the workload is %s, and was %s", after, before)
		}
		if _, gone := r.rollout(ctx, r.name); !apierrors.IsNotFound(gone) {
			err = errors.Join(err, gone, errors.New("after --undo the DomainRollout still exists"))
		}
		return err
	})
	return "a StatefulSet, a DaemonSet and a Deployment are adopted and updated by zones, and undone they have their own fields again", err
}

// adoptAndUpdate adopts a workload twice, and updates it.
func (s *scene) adoptAndUpdate(ctx context.Context, r *rolled) error {
	o, err := r.observe(ctx)
	if err != nil {
		return err
	}
	defer o.stop()
	if _, err := s.vicinity(ctx, "rollout", "adopt", "-n", r.Namespace, "--apply"); err != nil {
		return err
	}
	if _, err := r.waitPhase(ctx, v1alpha1.PhaseComplete); err != nil {
		return err
	}
	var order []string
	if r.kind == ofDeployment { // the gate changes its template
		order = r.Zones()
	}
	if err := errors.Join(r.waitHealthy(ctx), o.since().within(1, order...)); err != nil {
		return err
	}
	_, generation, err := r.fields(ctx)
	if err != nil {
		return err
	}
	if _, err := s.vicinity(ctx, "rollout", "adopt", "-n", r.Namespace, "--apply"); err != nil {
		return err
	}
	_, again, err := r.fields(ctx)
	if err == nil && again != generation {
		err = fmt.Errorf("adopted again, the generation is %d and was %d", again, generation)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(r.update(ctx, "2", "500ms", ""), r.waitComplete(ctx, "2")); err != nil {
		return err
	}
	return o.since().within(1, r.Zones()...)
}

// fields returns the annotations and the spec of the workload, without the metadata of its template, and its generation.
func (r *rolled) fields(ctx context.Context) (text string, generation int64, err error) {
	body, err := r.AppsV1().RESTClient().Get().SetHeader("Accept", "application/json").
		Namespace(r.Namespace).Resource(strings.ToLower(r.kind) + "s").Name(r.name).DoRaw(ctx)
	if err != nil {
		return "", 0, err
	}
	var w struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     map[string]any    `json:"spec"`
	}
	if err := json.Unmarshal(body, &w); err != nil {
		return "", 0, err
	}
	delete(w.Metadata.Annotations, v1alpha1.AnnotationDeploymentRevision)
	delete(w.Metadata.Annotations, appsv1.DeprecatedTemplateGeneration)
	unstructured.RemoveNestedField(w.Spec, "template", "metadata")
	return fmt.Sprint(w.Metadata.Annotations, w.Spec), w.Metadata.Generation, nil
}

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
)

// scaledDownWhileKilled has a HorizontalPodAutoscaler scale a Deployment down, and kills all processes of the controller after the
// first write has its answer and before the Deployment says what is wanted of it. It does so twice: the autoscaler stays, and it goes.
func scaledDownWhileKilled(ctx context.Context, s *scene) (string, error) {
	manifests, err := story(2)
	if err != nil {
		return "", err
	}
	var figures []string
	for _, name := range []string{"stays", "goes"} {
		w := shrunk{number: 2, inZone: 1, inAll: len(s.field().Zones())}
		figure, err := s.shrinkStory(ctx, w, manifests, name, func(w shrunk, ctx context.Context, l *leaving) (string, error) {
			return s.shrinksWhileKilled(ctx, w, l, name == "stays")
		})
		if err != nil {
			return "", fmt.Errorf("an autoscaler that %s: %w", name, err)
		}
		figures = append(figures, fmt.Sprintf("an autoscaler that %s: %s", name, figure))
	}
	return strings.Join(figures, "; "), nil
}

func (s *scene) shrinksWhileKilled(ctx context.Context, w shrunk, l *leaving, stays bool) (figure string, err error) {
	if _, err := w.pace(ctx, v1alpha1.PaceClamp); err != nil {
		return "", err
	}
	replicas, err := controllers(ctx, s.Client)
	if err != nil {
		return "", err
	}
	if err := errors.Join(autoscaled(ctx, zoned{Field: w.Field, name: "foo"}, storyLeft), w.answered(ctx), s.kill(replicas)); err != nil {
		return "", err
	}
	has, wanted, err := w.replicas(ctx)
	if err != nil {
		return "", err
	}
	if wanted != "" {
		return "", fmt.Errorf("the controller was killed too late: the Deployment has %d replicas and says already that %s are wanted", has, wanted)
	}
	scalers := w.AutoscalingV2().HorizontalPodAutoscalers(w.Namespace)
	if !stays {
		err = scalers.Delete(ctx, "foo", metav1.DeleteOptions{})
	}
	if err := errors.Join(err, s.vicinityWorks(ctx), w.ends(ctx), w.noConflict(ctx)); err != nil {
		return "", err
	}
	most, inZone := l.seen()
	if most > w.inAll || inZone > w.inZone {
		return "", fmt.Errorf("%d pods of a zone and %d in all went at once, want %d and %d at most: %s", inZone, most, w.inZone, w.inAll, strings.Join(l.told(), ", "))
	}
	return fmt.Sprintf("%d pods of the controller killed at %d replicas, of which %d are left, %d at once and %d of a zone", len(replicas), has, storyLeft, most, inZone), nil
}

// kill kills the processes of pods of the controller, which start again.
func (s *scene) kill(replicas []corev1.Pod) error {
	var failed []error
	for i := range replicas {
		failed = append(failed, s.killIn(shape.PodNamespace(s.cluster.Shape().Name, string(replicas[i].UID)), "vicinity-controller"))
	}
	return errors.Join(failed...)
}

// answered waits until the Deployment has fewer replicas. What is wanted of it is noted half a second later.
func (w shrunk) answered(ctx context.Context) error {
	watched, err := w.AppsV1().Deployments(w.Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=foo"})
	if err != nil {
		return err
	}
	defer watched.Stop()
	for event := range watched.ResultChan() {
		if d, is := event.Object.(*appsv1.Deployment); is && *d.Spec.Replicas < storyPods {
			return nil
		}
	}
	return errors.Join(ctx.Err(), errors.New("the watch ended before the Deployment had fewer replicas"))
}

// noConflict has no write of the autoscaler have met another one.
func (w shrunk) noConflict(ctx context.Context) error {
	events, err := w.CoreV1().Events(w.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler"})
	if err != nil {
		return err
	}
	for i := range events.Items {
		if message := events.Items[i].Message; strings.Contains(message, "has been modified") {
			return fmt.Errorf("a write of the autoscaler met another one: %s", message)
		}
	}
	return nil
}

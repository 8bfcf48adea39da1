package e2e_test

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// ordinalSizes are what a StatefulSet whose ordinals take turns has one after the other.
var ordinalSizes = []int{7, 4, 2}

// ordinalsSpread has a StatefulSet whose pods are made at once scaled down, beside one that Vicinity leaves alone.
func ordinalsSpread(ctx context.Context, s *scene) (string, error) {
	sets := []zoned{{s.field(), "turns", ordinalSizes[0], true}, {s.field(), "plain", ordinalSizes[0], false}}
	spreads := make([][][]int, len(sets))
	err := meter.InParallel(ctx, len(sets), len(sets), func(ctx context.Context, i int) (err error) {
		spreads[i], err = sets[i].shrinkOrdinals(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d, %d and %d pods are %s (without the annotation %s)", ordinalSizes[0], ordinalSizes[1], ordinalSizes[2], tellAll(spreads[0]), tellAll(spreads[1])), nil
}

// shrinkOrdinals makes a StatefulSet, scales it down, and returns the spread of each size. Of one that keeps its spread
// each has to be the best that so many pods can have.
func (z zoned) shrinkOrdinals(ctx context.Context) (spreads [][]int, err error) {
	annotations := fmt.Sprintf("%s: 500ms", shape.AnnotationStartTime)
	if z.keeps {
		annotations += fmt.Sprintf(", %s: %s", v1alpha1.AnnotationSpreadOrdinals, corev1.LabelTopologyZone)
	}
	err = z.Apply(ctx, z.Namespace, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  serviceName: %[1]s
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s, version: "1"}
      annotations: {%[3]s}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {%[4]s: "true"}
      containers: [{name: main, image: none}]
`, z.name, z.replicas, annotations, shape.LabelFake))
	if err != nil {
		return nil, err
	}
	zones := len(z.Zones())
	for _, replicas := range ordinalSizes {
		body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := z.AppsV1().StatefulSets(z.Namespace).Patch(ctx, z.name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		counts, err := z.rests(ctx, replicas, "1")
		if err != nil {
			return nil, err
		}
		want := make([]int, zones)
		for i := range replicas {
			want[i%zones]++
		}
		if z.keeps && !slices.Equal(counts, want) {
			return nil, fmt.Errorf("%d pods of %s are spread %s, best is %s", replicas, z.name, told(counts), told(want))
		}
		spreads = append(spreads, counts)
	}
	return spreads, nil
}

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// hintPatch changes hints that differ, the annotation of held zones and the label, and nothing else. The guard makes
// the indices of endpoints valid.
func hintPatch(write hints.Write) []shell.Operation {
	patch := []shell.Operation{shell.Guard(write.Slice)}
	for i := range write.Endpoints {
		before, after := write.Slice.Endpoints[i].Hints, write.Endpoints[i].Hints
		if before == after {
			continue
		}
		path := fmt.Sprintf("/endpoints/%d/hints", i)
		switch {
		case after != nil && before != nil:
			patch = append(patch, shell.Replace(path, after))
		case after != nil:
			patch = append(patch, shell.Add(path, after))
		default:
			patch = append(patch, shell.Remove(path))
		}
	}
	return append(append(patch, heldPatch(write)...), markPatch(write)...)
}

// markPatch sets or removes the label for routed slices, where Kubernetes does not copy it. A slice of a Service has
// labels.
func markPatch(write hints.Write) []shell.Operation {
	path := shell.Pointer("metadata", "labels", v1alpha1.LabelRouted)
	switch {
	case !hints.IsForeign(write.Slice) || write.Marked == hints.IsMarked(write.Slice):
		return nil
	case write.Marked:
		return []shell.Operation{shell.Add(path, "true")}
	}
	return []shell.Operation{shell.Remove(path)}
}

func heldPatch(write hints.Write) []shell.Operation {
	before, found := write.Slice.Annotations[v1alpha1.AnnotationHeld]
	path := shell.Pointer("metadata", "annotations", v1alpha1.AnnotationHeld)
	switch {
	case write.Held == before:
		return nil
	case write.Held == "":
		return []shell.Operation{shell.Remove(path)}
	case found || len(write.Slice.Annotations) > 0:
		return []shell.Operation{shell.Add(path, write.Held)}
	}
	return []shell.Operation{shell.Add("/metadata/annotations", map[string]string{v1alpha1.AnnotationHeld: write.Held})}
}

func (r *reconciler) writeHints(ctx context.Context, write hints.Write) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: write.Slice.Namespace, Name: write.Slice.Name}}
	if err := shell.Patch(ctx, r.client, slice, hintPatch(write)); err != nil {
		return nil, fmt.Errorf("writing hints of EndpointSlice %s: %w", write.Slice.Name, err)
	}
	return slice, nil
}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// serviceObject returns a Service to read a response into.
func serviceObject(service *corev1.Service) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
}

// hintBackoff delays writes of hints that are removed again, as by Kubernetes' own controller while the webhook is
// down, or that are not stored as written, as with another mutating webhook. A failure is a loss of hints.
type hintBackoff struct {
	shell.Backoff
	written time.Time
}

const (
	// firstWait is the delay after the first loss, and longestWait the longest delay.
	firstWait   = time.Second
	longestWait = 5 * time.Minute
	// proof is how long hints must stay to count as safe: Kubernetes' controller acts about a second after a write.
	proof = 5 * time.Second
	// reportedLosses is the number of losses in a row that is reported.
	reportedLosses = 3
)

func (b *hintBackoff) noteLoss(now time.Time) { b.Fail(now, firstWait, longestWait) }

// confirm notes that the hints are as written.
func (b *hintBackoff) confirm(now time.Time) {
	switch {
	case b.Failures == 0:
	case b.written.IsZero(): // an earlier controller has written them
		b.written = now
	case now.Sub(b.written) >= proof:
		b.Backoff = shell.Backoff{}
	}
}

func (b *hintBackoff) isReported() bool { return b.Failures >= reportedLosses }

// untilProof returns how long hints must still stay to count as safe, zero if none was lost.
func (b *hintBackoff) untilProof(now time.Time) time.Duration {
	if b.Failures == 0 {
		return 0
	}
	return max(0, b.written.Add(proof).Sub(now))
}

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
	if write.Held != write.Slice.Annotations[v1alpha1.AnnotationHeld] {
		patch = append(patch, shell.SetAnnotation(write.Slice, v1alpha1.AnnotationHeld, write.Held))
	}
	// Kubernetes does not copy the label to foreign slices. A slice of a Service has labels.
	if hints.IsForeign(write.Slice) && write.Marked != hints.IsMarked(write.Slice) {
		patch = append(patch, shell.SetLabel(write.Slice, v1alpha1.LabelRouted, map[bool]string{true: "true"}[write.Marked]))
	}
	return patch
}

func (r *reconciler) writeHints(ctx context.Context, write hints.Write) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: write.Slice.Namespace, Name: write.Slice.Name}}
	if err := shell.Patch(ctx, r.client, slice, hintPatch(write)); err != nil {
		return nil, fmt.Errorf("writing hints of EndpointSlice %s: %w", write.Slice.Name, err)
	}
	return slice, nil
}

// serviceObject returns a Service to read a response into.
func serviceObject(service *corev1.Service) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
}

// lossBackoff delays writes that another writer undoes, as Kubernetes' own controller does with hints while the webhook
// is down, or that are not stored as written, as with another mutating webhook. A failure is a loss.
type lossBackoff struct {
	shell.Backoff
	written        time.Time
	longest, proof time.Duration // the longest delay, and how long a write must stay to count as safe
}

var (
	// Kubernetes' controller acts about a second after a write.
	hintLosses = lossBackoff{longest: 5 * time.Minute, proof: 5 * time.Second}
	// Each mark wakes every proxy, and some writers undo changes every few minutes.
	markLosses = lossBackoff{longest: time.Hour, proof: 10 * time.Minute}
)

const (
	// firstWait is the delay after the first loss.
	firstWait = time.Second
	// reportedLosses is the number of losses in a row that is reported.
	reportedLosses = 3
)

func (b *lossBackoff) noteLoss(now time.Time) { b.Fail(now, firstWait, b.longest) }

// confirm notes that the object is as written.
func (b *lossBackoff) confirm(now time.Time) {
	switch {
	case b.Failures == 0:
	case b.written.IsZero(): // an earlier controller has written them
		b.written = now
	case now.Sub(b.written) >= b.proof:
		b.Backoff = shell.Backoff{}
	}
}

func (b *lossBackoff) isReported() bool { return b.Failures >= reportedLosses }

// untilProof returns how long a write must still stay to count as safe, zero if none was lost.
func (b *lossBackoff) untilProof(now time.Time) time.Duration {
	if b.Failures == 0 {
		return 0
	}
	return max(0, b.written.Add(b.proof).Sub(now))
}

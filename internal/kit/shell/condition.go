package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// statusPatcher is the part of a client that patches the status of objects.
type statusPatcher interface {
	Status() client.SubResourceWriter
}

// WriteCondition merges a condition into the status of an object of a built-in kind, and updates the object to the stored one.
func WriteCondition(ctx context.Context, c statusPatcher, object client.Object, condition metav1.Condition) error {
	return patchCondition(ctx, c, object, condition.Type, condition)
}

// RemoveCondition removes a condition from an object of a built-in kind.
func RemoveCondition(ctx context.Context, c statusPatcher, object client.Object, name string) error {
	return patchCondition(ctx, c, object, name, map[string]string{"$patch": "delete", "type": name})
}

func patchCondition(ctx context.Context, c statusPatcher, object client.Object, name string, condition any) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	err = c.Status().Patch(ctx, object, client.RawPatch(types.StrategicMergePatchType, body))
	switch {
	case apierrors.IsNotFound(err):
		return ErrChanged
	case err != nil:
		return fmt.Errorf("writing the condition %s: %w", name, err)
	}
	return nil
}

// SameCondition compares conditions without their times.
func SameCondition(a, b *metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// Transition sets LastTransitionTime. The condition before, which may be nil, keeps its time if the status is the same.
func Transition(before *metav1.Condition, after metav1.Condition, now time.Time) metav1.Condition {
	after.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if before != nil && before.Status == after.Status {
		after.LastTransitionTime = before.LastTransitionTime
	}
	return after
}

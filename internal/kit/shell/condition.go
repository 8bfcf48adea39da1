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

// WriteCondition merges one condition into those of an object of Kubernetes' own, which
// becomes what the API server stores.
func WriteCondition(ctx context.Context, c statusPatcher, object client.Object, condition metav1.Condition) error {
	return patchCondition(ctx, c, object, condition.Type, condition)
}

// RemoveCondition takes a condition off an object of Kubernetes' own.
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

// SameCondition reports whether two conditions say the same.
func SameCondition(a, b *metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// Transition is a condition with the time since when its status is what it is, by the one
// before, which may be nil.
func Transition(before *metav1.Condition, after metav1.Condition, now time.Time) metav1.Condition {
	after.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	if before != nil && before.Status == after.Status {
		after.LastTransitionTime = before.LastTransitionTime
	}
	return after
}

package requests

import (
	"context"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Deleter is a responder that deletes pods in its turn, which no webhook of evictions sees.
type Deleter struct {
	Client    kubernetes.Interface
	Namespace string
	Name      string // in pods
	// Before, if set, is called before each deletion; false postpones it.
	Before func(pod string) bool
}

// Run deletes pods until the context ends.
func (d Deleter) Run(ctx context.Context) error {
	ticker := time.NewTicker(syncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := d.sync(ctx)
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
}

func (d Deleter) sync(ctx context.Context) error {
	list, err := d.Client.LifecycleV1alpha1().Evictions(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: d.Name})
	if err != nil {
		return err
	}
	for i := range list.Items {
		status := &list.Items[i].Status
		pod := list.Items[i].Spec.Target.Pod
		for at, responder := range status.TargetResponders {
			report := reportOf(status, at)
			if responder.Name != d.Name || responder.State != lifecyclev1alpha1.ResponderStateActive || report.CompletionTime != nil ||
				d.Before != nil && !d.Before(pod.Name) {
				continue
			}
			err := d.Client.CoreV1().Pods(d.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
			report.HeartbeatTime, report.CompletionTime = new(metav1.Now()), new(metav1.Now())
			if _, err := d.Client.LifecycleV1alpha1().Evictions(d.Namespace).UpdateStatus(ctx, &list.Items[i], metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

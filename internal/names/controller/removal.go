package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	// removalPage is the size of a page of a list.
	removalPage = 500
	// removalRetry is the pause after a failure.
	removalRetry = 30 * time.Second
)

// removal deletes the PodLocators of an earlier controller after they are switched off: they would become stale and still count. It
// lists them once, without a cache: no new ones appear. It cannot recognize those of another controller in the cluster, so Unset
// does not run it.
type removal struct {
	reader  client.Reader
	writer  client.Writer
	limiter flowcontrol.RateLimiter
}

func newRemoval(mgr manager.Manager, options Options) *removal {
	return &removal{reader: mgr.GetAPIReader(), writer: mgr.GetClient(), limiter: options.limiter()}
}

// Start implements manager.Runnable. Only the leader runs it. If it ends early, the next leader continues.
func (r *removal) Start(ctx context.Context) error {
	logger := log.FromContext(ctx)
	for {
		removed, err := r.remove(ctx)
		if removed > 0 {
			logger.Info("Removed PodLocators, because they are switched off", "count", removed)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		logger.Error(err, "Cannot remove PodLocators, although they are switched off")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(removalRetry):
		}
	}
}

// remove deletes all PodLocators of the controller, and returns their number.
func (r *removal) remove(ctx context.Context) (removed int, err error) {
	managed := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}
	next := ""
	for {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodLocatorList"))
		switch err := r.reader.List(ctx, list, managed, client.Limit(removalPage), client.Continue(next)); {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return removed, nil // the API has no PodLocators
		case apierrors.IsResourceExpired(err) && next != "":
			// The API server keeps the pages of a list for some minutes. A new list is shorter, so this ends.
			next = ""
			continue
		case err != nil:
			return removed, fmt.Errorf("reading PodLocators: %w", err)
		}
		for i := range list.Items {
			deleted, err := r.delete(ctx, &list.Items[i])
			if err != nil {
				return removed, err
			}
			if deleted {
				removed++
			}
		}
		if next = list.Continue; next == "" {
			return removed, nil
		}
	}
}

// delete deletes a PodLocator unless it is deleted or being deleted.
func (r *removal) delete(ctx context.Context, locator *metav1.PartialObjectMetadata) (deleted bool, err error) {
	if locator.DeletionTimestamp != nil {
		return false, nil
	}
	if err := r.limiter.Wait(ctx); err != nil {
		return false, err
	}
	locator.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PodLocator"))
	uid := locator.UID
	err = r.writer.Delete(ctx, locator, client.Preconditions{UID: &uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting PodLocator %s: %w", client.ObjectKeyFromObject(locator), err)
	}
	return true, nil
}

package watcher

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// Selected lists and watches the objects of a resource in all namespaces, by a label selector.
func Selected(client rest.Interface, resource, selector string) cache.ListerWatcher {
	return ListFirst{cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = selector
	})}
}

// Named lists and watches one object.
func Named(client rest.Interface, resource, namespace, name string) cache.ListerWatcher {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	return ListFirst{cache.NewListWatchFromClient(client, resource, namespace, only)}
}

// ListFirst lists objects before it watches them. The client library prefers a list by watch. That takes twice the time and CPU on
// both sides, and does not report a missing resource.
type ListFirst struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes the client library list first.
func (ListFirst) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext lists the current objects. The client library would accept any old state of an API server, even older than the
// state of this process.
func (l ListFirst) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersion == "0" {
		// API servers also answer this from memory, after they have checked that it is up to date.
		options.ResourceVersion, options.Limit = "", 0
	}
	return l.ListWatch.ListWithContext(ctx, options)
}

// Optional is a resource that the API may lack.
type Optional struct {
	cache.ListerWatcher
	// Lacks reports whether an error means that the API lacks the resource.
	Lacks func(error) bool
	// Absent is called with that error, once, after the API has lacked the resource for the time After. It may be nil.
	After  time.Duration
	Absent func(error)
	// Empty is the list of an absent resource. Without it the client library gets the error, and logs it each time.
	Empty runtime.Object
	// Failed is called with each other error. It may be nil.
	Failed func(error)
	// Again is the pause between lists of an absent resource, doubled up to MostAgain. Zero leaves it to the client library.
	Again, MostAgain time.Duration

	since    time.Time
	reported bool
	wait     time.Duration
}

// IsWatchListSemanticsUnSupported answers for the wrapped source.
func (o *Optional) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(o.ListerWatcher)
}

// ListWithContext lists objects, and handles an absent resource.
func (o *Optional) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := cache.ToListerWithContext(o.ListerWatcher).ListWithContext(ctx, options)
	if err == nil || !o.Lacks(err) {
		o.since, o.reported, o.wait = time.Time{}, false, 0
		if err != nil && o.Failed != nil {
			o.Failed(err)
		}
		return list, err
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	if time.Since(o.since) < o.After {
		return list, err
	}
	if !o.reported {
		o.reported = true
		if o.Absent != nil {
			o.Absent(err)
		}
	}
	o.wait = min(max(o.Again, 2*o.wait), o.MostAgain)
	if o.Empty != nil {
		return o.Empty.DeepCopyObject(), nil
	}
	o.pause(ctx)
	return list, err
}

func (o *Optional) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(o.wait):
	}
}

// WatchWithContext watches objects. For an absent resource it pauses, and then makes the client library list again.
func (o *Optional) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if o.reported && o.Empty != nil {
		o.pause(ctx)
		return nil, apierrors.NewResourceExpired("the resource was absent") // the client library does not log this
	}
	return cache.ToWatcherWithContext(o.ListerWatcher).WatchWithContext(ctx, options)
}

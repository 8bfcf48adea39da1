// Package lifecycle finds out whether an API server serves EvictionRequests, an alpha API of
// Kubernetes 1.37 that is off by default. Where it is served, pods keep the names of their
// eviction responders, too: the API server drops them otherwise. The package uses nothing of the
// API.
package lifecycle

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Every is how often a Detector looks again. It is one small request to the API server.
const Every = time.Minute

// resources are what has to be served.
var resources = []string{"evictionrequests", "evictions", "evictions/status"}

// server is the part of a discovery client that lists what is served.
type server interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Detector knows whether the API is served. It is a runnable of a manager, on each replica.
type Detector struct {
	server server
	log    logr.Logger
	served atomic.Bool
}

// NewDetector makes a Detector of a discovery client.
func NewDetector(s server, log logr.Logger) *Detector { return &Detector{server: s, log: log} }

// Served reports whether the API was served when the Detector last looked.
func (d *Detector) Served() bool { return d.served.Load() }

// Start implements manager.Runnable.
func (d *Detector) Start(ctx context.Context) error {
	d.Look(ctx)
	if !d.Served() {
		d.log.Info("EvictionRequests are not served: nothing answers them until they are", "api", lifecyclev1alpha1.SchemeGroupVersion.String())
	}
	wait.UntilWithContext(ctx, d.Look, Every)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (d *Detector) NeedLeaderElection() bool { return false }

// Look asks the API server. What was known stays if it does not answer.
func (d *Detector) Look(ctx context.Context) {
	list, err := d.server.ServerResourcesForGroupVersionWithContext(ctx, lifecyclev1alpha1.SchemeGroupVersion.String())
	served := false
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		d.log.V(1).Info("Cannot tell whether EvictionRequests are served", "error", err.Error())
		return
	default:
		served = !slices.ContainsFunc(resources, func(resource string) bool {
			return !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
		})
	}
	if d.served.Swap(served) != served {
		d.log.Info("EvictionRequests are served by now, or no longer", "served", served)
	}
}

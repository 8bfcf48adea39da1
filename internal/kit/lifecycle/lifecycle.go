// Package lifecycle detects whether an API server serves EvictionRequests, an alpha API of
// Kubernetes 1.37 that is off by default. Without it, the API server drops the eviction responders of pods.
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

// Every is the interval of a Detector. A look is one small request.
const Every = time.Minute

// resources must all be served.
var resources = []string{"evictionrequests", "evictions", "evictions/status"}

// server is the part of a discovery client that lists resources.
type server interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Detector knows whether the API is served. It is a runnable of a manager that runs on each replica.
type Detector struct {
	server server
	log    logr.Logger
	served atomic.Bool
}

// NewDetector returns a Detector with a discovery client.
func NewDetector(s server, log logr.Logger) *Detector { return &Detector{server: s, log: log} }

// Served reports whether the API was served at the last look.
func (d *Detector) Served() bool { return d.served.Load() }

// Start implements manager.Runnable.
func (d *Detector) Start(ctx context.Context) error {
	d.Look(ctx)
	if !d.Served() {
		d.log.Info("The API server does not serve EvictionRequests; they get no answer until it does", "api", lifecyclev1alpha1.SchemeGroupVersion.String())
	}
	wait.UntilWithContext(ctx, d.Look, Every)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (d *Detector) NeedLeaderElection() bool { return false }

// Look asks the API server. Without an answer the last result stays.
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
		d.log.Info("Whether EvictionRequests are served has changed", "served", served)
	}
}

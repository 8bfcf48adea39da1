package endpointslice

import (
	"context"
	"errors"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/translate"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// Path is where the webhook is served.
const Path = "/mutate-endpointslice"

// Options are what the webhook depends on.
type Options struct {
	// User is the name of the user that the routing controller writes as,
	// system:serviceaccount:NAMESPACE:NAME.
	User string
	// Exclusion says whose slices are left alone, as the routing controller
	// has it.
	Exclusion translate.Exclusion
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhook. The manager's cache of slices, all of them
// and whole, is filled from its start then, also while another replica leads.
func Register(mgr manager.Manager, o Options) error {
	if o.User == "" {
		return errors.New("the user of the routing controller is not known, and its own writes would be taken for those of others")
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, serviceIndex, serviceOf); err != nil {
		return fmt.Errorf("indexing slices by their Service: %w", err)
	}
	admission.Register(mgr, Path, newJudge(o, cached{mgr.GetCache()}), admissionOptions(o))
	return nil
}

func admissionOptions(o Options) admission.Options {
	return admission.Options{
		Webhook: "endpointslice", OnFailure: admission.FailOpen, Unjudged: admission.Failed,
		Complaint: "Slice is not kept as it should be", Metrics: o.Metrics,
	}
}

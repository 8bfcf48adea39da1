package endpointslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	strictjson "sigs.k8s.io/json"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/routing/intent"
)

type judge struct {
	Options
	slices client.Reader // with the index serviceIndex
	// object and stored are the slices of the review in JSON, nil for none.
	object, stored []byte
}

func newJudge(o Options, c client.Reader) func() admission.Judge {
	return func() admission.Judge { return &judge{Options: o, slices: c} }
}

// Reset implements admission.Judge.
func (j *judge) Reset() { j.object, j.stored = nil, nil }

// Read implements admission.Judge.
func (j *judge) Read(r *admission.Reader, stored bool) error {
	if stored {
		return r.Raw(&j.stored)
	}
	return r.Raw(&j.object)
}

// Judge implements admission.Judge. If other slices cannot be read, the stored slice alone decides.
func (j *judge) Judge(ctx context.Context, r *admission.Request) (admission.Verdict, error) {
	skipped := admission.Verdict{Result: admission.Skipped}
	if !j.isConcerned(r) {
		return skipped, nil
	}
	var object, stored discoveryv1.EndpointSlice
	known, err := decode(j.object, &object)
	knownBefore, errBefore := decode(j.stored, &stored)
	if err := errors.Join(err, errBefore); err != nil {
		return admission.Verdict{}, err
	}
	kept := object
	kept.Endpoints = slices.Clone(object.Endpoints)
	if losesLabel(&object, &stored) {
		kept.Labels = maps.Clone(object.Labels)
		kept.Labels[v1alpha1.LabelRouted] = yes
	}
	var unread error
	switch {
	case object.AddressType == discoveryv1.AddressTypeFQDN, j.Exclusion.Reason(r.Namespace, object.Labels[discoveryv1.LabelServiceName]) != "":
		return skipped, nil
	case isRouted(&kept):
		unread = j.keep(ctx, r, &kept, &stored)
	case object.Labels[v1alpha1.LabelOwnZone] == yes:
		hintOwnZones(kept.Endpoints)
	default:
		return skipped, nil
	}
	verdict := admission.Verdict{Result: admission.Changed}
	patch := changes(&object, &kept)
	switch {
	case len(patch) > 0 && known && knownBefore && isRestored(&kept, &stored):
		patch, verdict.Result = append(patch, restorations(&object, &stored)...), admission.Restored
	case unread != nil:
		verdict.Result = admission.Degraded
	case len(patch) == 0:
		verdict.Result = admission.Unchanged
	}
	if len(patch) > 0 {
		verdict.Patch, err = json.Marshal(patch)
	}
	return verdict, errors.Join(unread, err)
}

// decode reads a slice, if there is one. It reports whether it knows all fields. Names of members must match exactly,
// as for the API server, because the patch uses them.
func decode(text []byte, slice *discoveryv1.EndpointSlice) (known bool, err error) {
	if text == nil {
		return true, nil
	}
	unknown, err := strictjson.UnmarshalStrict(text, slice, strictjson.DisallowUnknownFields)
	if err != nil {
		return false, fmt.Errorf("reading an EndpointSlice: %w", err)
	}
	return len(unknown) == 0, nil
}

const yes = "true"

func isRouted(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[v1alpha1.LabelRouted] == yes
}

// isConcerned reports whether the webhook reads the slices of a request. The slice of the API server has the name of
// its Service, whatever its labels are.
func (j *judge) isConcerned(r *admission.Request) bool {
	operation := admissionv1.Operation(r.Operation)
	return (operation == admissionv1.Create || operation == admissionv1.Update) && r.SubResource == "" && j.object != nil &&
		(j.User == "" || r.User != j.User) && j.Exclusion.Reason(r.Namespace, r.Name) == ""
}

// losesLabel reports whether the write removes the label for routed slices from a foreign slice. Kubernetes' own
// controller copies the labels of the Service. Other writers do not know the label, which the routing controller gives
// to their slices.
func losesLabel(object, stored *discoveryv1.EndpointSlice) bool {
	_, labelled := object.Labels[v1alpha1.LabelRouted]
	service, found := object.Labels[discoveryv1.LabelServiceName]
	return isRouted(stored) && !labelled && found && service == stored.Labels[discoveryv1.LabelServiceName] &&
		object.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedByKubernetes &&
		stored.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedByKubernetes
}

// keep finds the hints of a routed slice. If it fails, the stored slice alone decides.
func (j *judge) keep(ctx context.Context, r *admission.Request, kept, stored *discoveryv1.EndpointSlice) error {
	added, p := keepStored(kept.Endpoints, stored.Endpoints), planIn(stored.Endpoints)
	known := [][]discoveryv1.Endpoint{stored.Endpoints}
	var err error
	if len(added) > 0 && p != balanced {
		var others []discoveryv1.EndpointSlice
		others, err = j.siblings(ctx, r, kept)
		for i := range others {
			known = append(known, others[i].Endpoints)
		}
	}
	if p == unknown {
		for _, endpoints := range known {
			p = max(p, planIn(endpoints))
		}
	}
	p.hint(added, known)
	return err
}

// Path is the path of the webhook.
const Path = "/mutate-endpointslice"

// Options configure the webhook.
type Options struct {
	// User is the user of the routing controller, system:serviceaccount:NAMESPACE:NAME.
	User string
	// Exclusion is that of the routing controller.
	Exclusion intent.Exclusion
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register makes a manager serve the webhook. The manager's cache then has all slices, whole, from its start, even
// while another replica leads.
func Register(mgr manager.Manager, o Options) error {
	if o.User == "" {
		return errors.New("the user of the routing controller is unknown, so its own writes would count as those of others")
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, serviceIndex, serviceOf); err != nil {
		return fmt.Errorf("indexing slices by their Service: %w", err)
	}
	admission.Register(mgr, Path, newJudge(o, mgr.GetCache()), admissionOptions(o))
	return nil
}

func admissionOptions(o Options) admission.Options {
	return admission.Options{
		Webhook: "endpointslice", OnFailure: admission.FailOpen, Unjudged: admission.Failed,
		Complaint: "Hints of an EndpointSlice are not kept", Metrics: o.Metrics,
	}
}

// siblingTimeout is how long a review waits for a cache that is still filling.
const siblingTimeout = 200 * time.Millisecond

const serviceIndex = "webhook.endpointslice.service"

func serviceOf(object client.Object) []string {
	if service := object.GetLabels()[discoveryv1.LabelServiceName]; service != "" {
		return []string{service}
	}
	return nil
}

// siblings finds the other slices of a Service. They must not be changed, because the cache shares them.
func (j *judge) siblings(ctx context.Context, r *admission.Request, of *discoveryv1.EndpointSlice) ([]discoveryv1.EndpointSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, siblingTimeout)
	defer cancel()
	service := of.Labels[discoveryv1.LabelServiceName]
	var list discoveryv1.EndpointSliceList
	if err := j.slices.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{serviceIndex: service}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("looking for the slices of Service %s/%s: %w", r.Namespace, service, err)
	}
	found := slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return s.AddressType != of.AddressType || s.Name == r.Name
	})
	// Of an endpoint in two slices the first one counts.
	slices.SortFunc(found, func(a, b discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

package endpointslice

import (
	"bytes"
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// judge answers one review at a time.
type judge struct {
	Options
	siblings siblings

	object, stored slice
	keeper         keeper
	patch          patch
	// label says that the slice has to get the label for routed slices back.
	label bool
}

func newJudge(o Options, s siblings) func() admission.Judge {
	return func() admission.Judge { return &judge{Options: o, siblings: s} }
}

// Reset implements admission.Judge.
func (j *judge) Reset() {
	j.object.reset()
	j.stored.reset()
	j.keeper.reset()
	j.patch = patch{text: j.patch.text[:0]}
	j.label = false
}

// Read implements admission.Judge.
func (j *judge) Read(r *admission.Reader, stored bool) error {
	if stored {
		return j.stored.read(r)
	}
	return j.object.read(r)
}

// Judge implements admission.Judge. Where siblings cannot be read, the verdict goes by the
// stored slice alone.
func (j *judge) Judge(ctx context.Context, r *admission.Request) (admission.Verdict, error) {
	if !j.isConcerned(r) {
		return admission.Verdict{Result: admission.Skipped}, nil
	}
	result := admission.Changed
	var err error
	if j.label = j.losesLabel(); j.label || j.object.isRouted() {
		if err = j.keep(ctx, r); err != nil {
			result = admission.Degraded
		}
	} else {
		j.keeper.ownZones(&j.object)
	}
	result = j.write(result)
	return admission.Verdict{Patch: j.patch.finished(), Result: result}, err
}

// labelPath is where a slice has the label for routed slices, as patches write it.
const labelPath = "/metadata/labels/vicinity.dev~1routed"

// isConcerned reports whether the webhook looks at a request.
func (j *judge) isConcerned(r *admission.Request) bool {
	o, operation := &j.object, admissionv1.Operation(r.Operation)
	switch {
	case operation != admissionv1.Create && operation != admissionv1.Update, r.SubResource != "", !o.present:
	case !o.isRouted() && !is(o.ownZone, yes) && !j.losesLabel():
	case is(o.addressType, string(discoveryv1.AddressTypeFQDN)):
	case j.User != "" && r.User == j.User:
	default:
		// The slice of the API server has the name of its Service, whatever its labels say.
		return j.Exclusion.Reason(r.Namespace, string(unquoted(o.service))) == "" && j.Exclusion.Reason(r.Namespace, r.Name) == ""
	}
	return false
}

// losesLabel reports whether the write takes the label for routed slices from one that
// Kubernetes' own controller does not write. To its slices it copies the labels of their
// Service; the others have the label from the routing controller, and those who write them
// do not know it.
func (j *judge) losesLabel() bool {
	o, stored := &j.object, &j.stored
	return stored.present && stored.isRouted() && o.routed == nil && o.service != nil && bytes.Equal(o.service, stored.service) &&
		!is(o.managedBy, v1alpha1.ManagedByKubernetes) && !is(stored.managedBy, v1alpha1.ManagedByKubernetes)
}

// keep finds the hints of a routed slice. Where it fails they are by the stored slice alone.
func (j *judge) keep(ctx context.Context, r *admission.Request) error {
	object, stored := &j.object, &j.stored
	news, p := j.keeper.pair(object, stored), planned(stored)
	var err error
	if news && p != balanced {
		j.keeper.others, err = j.siblings.find(ctx, family{
			namespace:   r.Namespace,
			service:     string(unquoted(object.service)),
			addressType: discoveryv1.AddressType(unquoted(object.addressType)),
			except:      r.Name,
		})
		if p == unknown {
			p = j.keeper.plannedElsewhere()
		}
	}
	j.keeper.keep(object, stored, p)
	return err
}

// write makes a patch of the hints that were found, and returns what became of the request.
func (j *judge) write(result admission.Result) admission.Result {
	object, stored, want := &j.object, &j.stored, j.keeper.want
	for i := range object.endpoints {
		j.patch.setHints(i, object.endpoints[i].hints.raw, want[i])
	}
	if j.label {
		j.patch.set(labelPath, object.routed, stored.routed)
	}
	if len(j.patch.text) == 0 {
		if result == admission.Changed {
			return admission.Unchanged
		}
		return result
	}
	if stored.present && (j.label || bytes.Equal(object.routed, stored.routed)) && restores(object, stored, want) {
		j.patch.set("/metadata/annotations", object.annotations, stored.annotations)
		j.patch.set("/metadata/managedFields", object.managedFields, stored.managedFields)
		return admission.Restored
	}
	return result
}

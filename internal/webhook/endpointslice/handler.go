package endpointslice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/translate"
	"vicinity.dev/vicinity/internal/webhook/outcome"
)

// handler answers reviews.
type handler struct {
	// user is the routing controller, whose writes are left alone.
	user     string
	alone    translate.LeftAlone
	siblings siblings
	metrics  *outcome.Metrics
	log      logr.Logger
	memory   sync.Pool
}

// work is the memory that answering a review takes.
type work struct {
	body   bytes.Buffer
	review review
	keeper keeper
	patch  patch
	// label says that the slice has to get the label for routed slices back.
	label  bool
	answer []byte
}

// Sizes of reviews. An API server sends at most two objects of 3 MiB, and something
// about them; memory for more than a usual large slice is not kept.
const (
	maxReview  = 7 << 20
	keptReview = 2 << 20
)

// metricsName is what the webhook is called in metrics.
const metricsName = "endpointslice"

func (h *handler) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	begin := time.Now()
	k, ok := h.memory.Get().(*work)
	if !ok {
		k = &work{}
	}
	result, err := h.review(request.Context(), k, http.MaxBytesReader(w, request.Body, maxReview))
	w.Header().Set("Content-Type", "application/json")
	if _, failed := w.Write(k.answer); failed != nil {
		result, err = outcome.Failed, errors.Join(err, fmt.Errorf("answering: %w", failed))
	}
	h.metrics.Observe(metricsName, result, time.Since(begin))
	if err != nil {
		h.log.Error(err, "Slice is not kept as it should be", "result", string(result),
			"namespace", string(unquoted(k.review.namespace)), "name", string(unquoted(k.review.name)), "user", string(unquoted(k.review.user)))
	}
	if k.body.Cap() <= keptReview {
		h.memory.Put(k)
	}
}

// review reads a review and writes the answer into the memory given, which allows the
// request whatever goes wrong.
func (h *handler) review(ctx context.Context, k *work, body io.Reader) (result outcome.Result, err error) {
	k.body.Reset()
	k.review.reset()
	k.keeper.reset()
	k.patch = patch{text: k.patch.text[:0]}
	k.label = false
	defer func() {
		if panicked := recover(); panicked != nil {
			result, err = outcome.Failed, fmt.Errorf("panic: %v", panicked)
		}
		var finished []byte
		if result != outcome.Failed {
			finished = k.patch.finished()
		}
		k.answer = appendAnswer(k.answer[:0], k.review.uid, finished)
	}()
	if _, err := k.body.ReadFrom(body); err != nil {
		return outcome.Failed, fmt.Errorf("reading the review: %w", err)
	}
	if err := k.review.read(k.body.Bytes()); err != nil {
		return outcome.Failed, fmt.Errorf("reading the review: %w", err)
	}
	if !h.concerned(&k.review) {
		return outcome.Skipped, nil
	}
	result = outcome.Changed
	if lost := k.review.loseLabel(); lost || routed(&k.review.object) {
		k.label = lost
		if err = h.keep(ctx, k); err != nil {
			result = outcome.Degraded
		}
	} else {
		k.keeper.ownZones(&k.review.object)
	}
	return k.write(result), err
}

// labelPath is where a slice has the label for routed slices, as patches write it.
const labelPath = "/metadata/labels/vicinity.dev~1routed"

// concerned reports whether a request is one to look at.
func (h *handler) concerned(r *review) bool {
	o := &r.object
	switch {
	case !is(r.operation, "CREATE") && !is(r.operation, "UPDATE"), !is(r.subresource, ""), !o.present:
	case !routed(o) && !is(o.ownZone, yes) && !r.loseLabel():
	case is(o.addressType, string(discoveryv1.AddressTypeFQDN)):
	case h.user != "" && is(r.user, h.user):
	default:
		namespace := string(unquoted(r.namespace))
		// That of the API server has the name of its Service, whatever its labels say.
		return h.alone.Why(namespace, string(unquoted(o.service))) == "" && h.alone.Why(namespace, string(unquoted(r.name))) == ""
	}
	return false
}

// routed reports whether the routing controller decides the hints of a slice.
func routed(o *slice) bool { return is(o.routed, yes) }

// keep finds the hints of a routed slice. An error does not keep it from going by what
// the stored slice says.
func (h *handler) keep(ctx context.Context, k *work) error {
	object, stored := &k.review.object, &k.review.stored
	news, p := k.keeper.pair(object, stored), planned(stored)
	var err error
	if news && p != balanced {
		k.keeper.others, err = h.siblings.find(ctx, family{
			namespace:   string(unquoted(k.review.namespace)),
			service:     string(unquoted(object.service)),
			addressType: discoveryv1.AddressType(unquoted(object.addressType)),
			except:      string(unquoted(k.review.name)),
		})
		if p == unknown {
			p = k.keeper.plannedElsewhere()
		}
	}
	k.keeper.keep(object, stored, p)
	return err
}

// write makes a patch of the hints that were found.
func (k *work) write(result outcome.Result) outcome.Result {
	object, stored, want := &k.review.object, &k.review.stored, k.keeper.want
	for i := range object.endpoints {
		k.patch.setHints(i, object.endpoints[i].hints.raw, want[i])
	}
	if k.label {
		k.patch.set(labelPath, object.routed, stored.routed)
	}
	if len(k.patch.text) == 0 {
		if result == outcome.Changed {
			return outcome.Unchanged
		}
		return result
	}
	if stored.present && (k.label || bytes.Equal(object.routed, stored.routed)) && restores(object, stored, want) {
		k.patch.set("/metadata/annotations", object.annotations, stored.annotations)
		k.patch.set("/metadata/managedFields", object.managedFields, stored.managedFields)
		return outcome.Restored
	}
	return result
}

package endpointslice

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// plainly is the handler again with plain searches instead of maps: what an object should
// become.
func plainly(object, stored *discoveryv1.EndpointSlice, others []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	got := object.DeepCopy()
	if object.Labels[v1alpha1.LabelRouted] != "true" {
		if object.Labels[v1alpha1.LabelOwnZone] != "true" {
			return got
		}
		for i := range got.Endpoints {
			ownPlace(&got.Endpoints[i], false)
		}
	} else {
		plainlyKept(got, stored, others)
	}
	if stored != nil && !equality.Semantic.DeepEqual(got.Endpoints, object.Endpoints) && onlyTriggered(got, stored) {
		return stored.DeepCopy()
	}
	return got
}

// onlyTriggered reports whether a slice differs from the stored one in its trigger
// time and managed fields at most.
func onlyTriggered(got, stored *discoveryv1.EndpointSlice) bool {
	a, b := got.DeepCopy(), stored.DeepCopy()
	for _, s := range []*discoveryv1.EndpointSlice{a, b} {
		delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
		s.ManagedFields = nil
	}
	return equality.Semantic.DeepEqual(a, b)
}

func plainlyKept(got, stored *discoveryv1.EndpointSlice, others []*discoveryv1.EndpointSlice) {
	if stored == nil {
		stored = &discoveryv1.EndpointSlice{}
	}
	p := planOf(stored.Endpoints)
	all := slices.Clone(stored.Endpoints)
	for _, other := range others {
		all = append(all, other.Endpoints...)
	}
	if p == unknown {
		p = planOf(all)
	}
	nodes := slices.ContainsFunc(stored.Endpoints, hintedToNodes)
	for _, other := range others {
		nodes = nodes || slices.ContainsFunc(other.Endpoints, hintedToNodes)
	}
	for i := range got.Endpoints {
		e := &got.Endpoints[i]
		if same := findEndpoint(stored.Endpoints, e); same != nil {
			e.Hints = same.Hints.DeepCopy()
			continue
		}
		switch p {
		case balanced:
			e.Hints = nil
		case hinted, byNode:
			var moved *discoveryv1.Endpoint
			for _, other := range others {
				if same := findEndpoint(other.Endpoints, e); moved == nil && same != nil && planOf([]discoveryv1.Endpoint{*same}) == p {
					moved = same
				}
			}
			switch {
			case moved != nil:
				e.Hints = moved.Hints.DeepCopy()
			case p == byNode && e.NodeName != nil:
				e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: *e.NodeName}}}
			case p == hinted && e.Zone != nil && *e.Zone != "":
				e.Hints = nil
				ownPlace(e, nodes)
			}
			if beside := findBeside(all, e, p); moved == nil && beside != nil {
				e.Hints.ForNodes = slices.Clone(beside.Hints.ForNodes)
			}
		}
	}
}

func planOf(endpoints []discoveryv1.Endpoint) plan {
	for _, e := range endpoints {
		if e.Hints != nil && len(e.Hints.ForZones) > 0 {
			return hinted
		}
	}
	if slices.ContainsFunc(endpoints, hintedToNodes) {
		return byNode
	}
	if len(endpoints) > 0 {
		return balanced
	}
	return unknown
}

func hintedToNodes(e discoveryv1.Endpoint) bool { return e.Hints != nil && len(e.Hints.ForNodes) > 0 }

// findEndpoint finds an endpoint by address and place. Addresses are there once.
func findEndpoint(endpoints []discoveryv1.Endpoint, e *discoveryv1.Endpoint) *discoveryv1.Endpoint {
	for i := range endpoints {
		other := &endpoints[i]
		if other.Addresses[0] == e.Addresses[0] && equality.Semantic.DeepEqual(other.Zone, e.Zone) &&
			(!hintedToNodes(*other) || equality.Semantic.DeepEqual(other.NodeName, e.NodeName)) {
			return other
		}
	}
	return nil
}

// findBeside finds the first endpoint on the node of a new one that says what nodes such
// are for.
func findBeside(endpoints []discoveryv1.Endpoint, e *discoveryv1.Endpoint, p plan) *discoveryv1.Endpoint {
	for i := range endpoints {
		other := &endpoints[i]
		if e.NodeName == nil || !hintedToNodes(*other) || planOf([]discoveryv1.Endpoint{*other}) != p ||
			!equality.Semantic.DeepEqual(other.NodeName, e.NodeName) || !equality.Semantic.DeepEqual(other.Zone, e.Zone) {
			continue
		}
		if p == byNode || slices.Contains(other.Hints.ForZones, discoveryv1.ForZone{Name: *e.Zone}) {
			return other
		}
	}
	return nil
}

func ownPlace(e *discoveryv1.Endpoint, node bool) {
	if e.Zone == nil || *e.Zone == "" {
		return
	}
	if e.Hints == nil {
		e.Hints = &discoveryv1.EndpointHints{}
	}
	e.Hints.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	if node && e.NodeName != nil {
		e.Hints.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
}

// drawSlice draws a slice of endpoints, each of which has an address of its own.
func drawSlice(t *rapid.T, name string) *discoveryv1.EndpointSlice {
	s := aSlice(name)
	hints := rapid.SampledFrom([]string{"", " >a", " >b,c", " >a,node-a", " >a,c,node-none", " >b,node-x,node-y"})
	switch rapid.IntRange(0, 3).Draw(t, "plan") {
	case 0, 1:
		hints = rapid.Just("")
	case 2:
		hints = rapid.SampledFrom([]string{" >node-a", " >node-b", " >node-x,node-y"})
	}
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 0, 7, rapid.ID[int]).Draw(t, "endpoints") {
		place := rapid.SampledFrom([]string{"", " a", " a", " b", " c"}).Draw(t, "zone")
		s.Endpoints = append(s.Endpoints, ep(fmt.Sprintf("10.0.0.%d%s%s", i, place, hints.Draw(t, "hints"))))
	}
	return s
}

// TestAgainstPlainImplementation compares the patched object with what the plain
// implementation makes of it.
func TestAgainstPlainImplementation(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var stored *discoveryv1.EndpointSlice
		object := drawSlice(r, "cart-1")
		operation := admissionv1.Create
		if rapid.Bool().Draw(r, "update") {
			operation = admissionv1.Update
			stored = drawSlice(r, "cart-1")
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0:
				object = rewritten(stored)
			case 1:
				object = rewritten(stored)
				if i := len(object.Endpoints); i > 0 {
					unready(rapid.IntRange(0, i-1).Draw(r, "unready"))(object)
				}
			case 2:
				object = stored.DeepCopy()
				object.Endpoints = append(object.Endpoints, drawSlice(r, "more").Endpoints...)
				slices.SortStableFunc(object.Endpoints, func(a, b discoveryv1.Endpoint) int {
					return bytes.Compare([]byte(a.Addresses[0]), []byte(b.Addresses[0]))
				})
				object.Endpoints = slices.CompactFunc(object.Endpoints, func(a, b discoveryv1.Endpoint) bool { return a.Addresses[0] == b.Addresses[0] })
			}
			if rapid.IntRange(0, 4).Draw(r, "annotate") == 0 {
				object.Annotations = map[string]string{"note": "mine"}
			}
		}
		if rapid.IntRange(0, 3).Draw(r, "gardener") == 0 {
			for _, s := range []*discoveryv1.EndpointSlice{object, stored} {
				if s != nil {
					labelled(gardener)(s)
				}
			}
		}
		var others []*discoveryv1.EndpointSlice
		for i := range rapid.IntRange(0, 2).Draw(r, "others") {
			others = append(others, drawSlice(r, fmt.Sprintf("cart-%d", i+2)))
		}
		h, _ := testHandler(t, &known{slices: others})
		got := admitted(t, h, ask{operation: operation, user: upstreamUser, object: object, stored: stored})
		want := plainly(object, stored, others)
		if !equality.Semantic.DeepEqual(got, want) {
			r.Fatalf("the slice with %s, stored with %s, has %s, want %s; or else differs:\n%+v\n%+v",
				hintsOf(object), storedHints(stored), hintsOf(got), hintsOf(want), got, want)
		}
	})
}

func storedHints(s *discoveryv1.EndpointSlice) string {
	if s == nil {
		return "nothing"
	}
	return hintsOf(s)
}

// FuzzReview feeds the handler anything. It must allow it, and a patch must apply.
func FuzzReview(f *testing.F) {
	plan := aSlice("cart-1", "10.0.0.1 a >a,b", "10.0.0.2 b >b,node-b", "!10.0.0.3 c >c")
	for _, a := range []ask{
		{operation: admissionv1.Update, object: rewritten(plan), stored: plan},
		{operation: admissionv1.Update, object: with(rewritten(plan), replaced("10.0.0.2 b", "10.0.0.4 c")), stored: plan},
		{operation: admissionv1.Create, object: plan},
		{operation: admissionv1.Create, object: with(plan, labelled(gardener))},
		{operation: admissionv1.Delete, stored: plan},
	} {
		f.Add(a.review(f))
	}
	f.Add([]byte(`{"request":{"operation":"UPDATE","object":{"metadata":{"labels":{"vicinity.dev/routed":"true"}},"endpoints":[{"hints":null,"zone":""}]},"oldObject":null}}`))
	f.Add([]byte(`{"request":{"operation":"UPDATE","object":{"metadata":null,"endpoints":null},"oldObject":{"metadata":{},"endpoints":[]}}}`))
	f.Fuzz(func(t *testing.T, review []byte) {
		h, _ := testHandler(t, &known{slices: []*discoveryv1.EndpointSlice{aSlice("cart-2", "10.0.0.4 c >a")}})
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(review)))
		patch := answer(t, h, review)
		if patch == nil {
			return
		}
		var sent struct{ Request map[string]json.RawMessage }
		if err := json.Unmarshal(review, &sent); err != nil {
			t.Fatalf("a review that is not JSON got the patch %s: %v", patch, err)
		}
		object := patched(t, sent.Request["object"], patch)
		if !json.Valid(object) {
			t.Errorf("the patched object is not JSON: %s", object)
		}
	})
}

package endpointslice

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The handler allows every request, and its patches apply.
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

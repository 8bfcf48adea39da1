package rollout

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		answer string
		want   rollout.Truth
		said   string
	}{
		"an element":         {200, `{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0"]}]}}`, rollout.True, ""},
		"no element":         {200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, rollout.False, ""},
		"one":                {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, rollout.True, ""},
		"zero":               {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}`, rollout.False, ""},
		"no number":          {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"NaN"]}}`, rollout.False, ""},
		"a broken scalar":    {200, `{"status":"success","data":{"resultType":"scalar","result":[1,2]}}`, rollout.Unknown, "scalar"},
		"a broken vector":    {200, `{"status":"success","data":{"resultType":"vector","result":{}}}`, rollout.Unknown, "vector"},
		"a string":           {200, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`, rollout.Unknown, `type "string"`},
		"a query that fails": {422, `{"status":"error","error":"unknown function"}`, rollout.Unknown, "422: unknown function"},
		"another server":     {200, `<html>`, rollout.Unknown, "not as Prometheus"},
		"another place":      {302, ``, rollout.Unknown, "302"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/base/api/v1/query" || r.FormValue("query") != "up > 0" {
				t.Errorf("%s: the request is %s %v", name, r.URL, r.Form)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(test.code)
			if _, err := w.Write([]byte(test.answer)); err != nil {
				t.Error(err)
			}
		}))
		got, err := runQuery(t.Context(), newHTTPClient(), v1alpha1.PrometheusGate{URL: server.URL + "/base", Query: "up > 0"})
		server.Close()
		said := ""
		if err != nil {
			said = err.Error()
		}
		if got != test.want || (test.said == "") != (err == nil) || !strings.Contains(said, test.said) {
			t.Errorf("%s is read as %v, %v", name, got, err)
		}
	}
	if got, err := runQuery(t.Context(), newHTTPClient(), v1alpha1.PrometheusGate{URL: "http://127.0.0.1:1", Query: "up"}); got != rollout.Unknown || err == nil {
		t.Errorf("a server that is not there says %v, %v", got, err)
	}
}

// An answer counts for a while, but not for another query.
func TestAnswersAreKept(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	var g gate
	now := time.Unix(1000, 0)
	for _, step := range []struct {
		query string
		after time.Duration
		want  int
	}{{"a", 0, 1}, {"a", queryTime - 1, 1}, {"b", queryTime - 1, 2}, {"b", 2 * queryTime, 3}} {
		for g.ask(t.Context(), server.Client(), v1alpha1.PrometheusGate{URL: server.URL, Query: step.query}, now.Add(step.after)) {
		}
		if asked != step.want || g.said == "" {
			t.Errorf("%s after %s: asked %d times, want %d", step.query, step.after, asked, step.want)
		}
	}
}

// A server that takes its time keeps nothing else from being done. Its last answer counts meanwhile, if that is new.
func TestSlowAnswers(t *testing.T) {
	answers := make(chan struct{})
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answers
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`)
	}))
	defer server.Close()
	defer close(answers)
	var g gate
	now := time.Unix(1000, 0)
	ask := func(after time.Duration) bool {
		now = now.Add(after)
		return g.ask(t.Context(), server.Client(), v1alpha1.PrometheusGate{URL: server.URL, Query: "up"}, now)
	}
	for _, step := range []struct {
		after time.Duration
		truth rollout.Truth // while it is waited for
	}{{0, rollout.Unknown}, {queryTime, rollout.True}, {2 * queryTime, rollout.Unknown}} {
		for range 2 {
			if !ask(step.after) || g.truth != step.truth {
				t.Fatalf("after %s: an answer is there, or %v counts", step.after, g.truth)
			}
			step.after = 0
		}
		answers <- struct{}{}
		for ask(0) {
		}
		if g.truth != rollout.True || g.said != "" {
			t.Errorf("after %s: %v, %q", step.after, g.truth, g.said)
		}
	}
	if len(asked) != 3 {
		t.Errorf("the server was asked %d times", len(asked))
	}
}

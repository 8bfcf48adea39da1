package health

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// ask returns the answer of a path: the code and the decoded body.
func ask(t *testing.T, handler http.Handler, path string) (code int, body map[string]any) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	if err := json.Unmarshal(recorder.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: %v in %q", path, err, recorder.Body)
	}
	if kind := recorder.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s: the content is %q", path, kind)
	}
	return recorder.Code, body
}

func TestHealth(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-1"}}
	tainted := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: taintToBeDeleted}}}}
	going := &corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: start}}}
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for name, test := range map[string]struct {
		node                  *corev1.Node
		do                    func(*State, *clocktesting.FakePassiveClock)
		healthz, livez, ready int
		// families are the state of each, if the row is about that.
		families map[string]any
	}{
		"starting": {node: node, healthz: 200, livez: 200, ready: 503},
		"starting for too long": {
			node: node, healthz: 503, livez: 503, ready: 503,
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Queued(both...)
				c.SetTime(start.Add(Timeout))
			},
		},
		"nothing to do for long": {
			node: node, healthz: 200, livez: 200, ready: 200,
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Updated(both...)
				c.SetTime(start.Add(time.Hour))
			},
		},
		"a change waits a little": {
			node: node, healthz: 200, livez: 200, ready: 200,
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Updated(both...)
				s.Queued(both...)
				c.SetTime(start.Add(Timeout - 1))
			},
		},
		"a change waits for too long, another came later": {
			node: node, healthz: 503, livez: 503, ready: 503,
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Updated(both...)
				s.Queued(both...)
				c.SetTime(start.Add(Timeout / 2))
				s.Queued(both...)
				c.SetTime(start.Add(Timeout))
			},
		},
		"one family fails": {
			node: node, healthz: 503, livez: 503, ready: 503,
			families: map[string]any{
				"IPv4": map[string]any{"lastUpdated": start.Format(time.RFC3339), "healthy": true},
				"IPv6": map[string]any{"lastUpdated": start.Format(time.RFC3339), "healthy": false},
			},
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Updated(both...)
				s.Queued(both...)
				s.Updated(corev1.IPv4Protocol)
				c.SetTime(start.Add(Timeout))
			},
		},
		"it caught up": {
			node: node, healthz: 200, livez: 200, ready: 200,
			do: func(s *State, c *clocktesting.FakePassiveClock) {
				s.Queued(both...)
				c.SetTime(start.Add(Timeout))
				s.Updated(both...)
			},
		},
		"the node is about to be removed": {
			node: tainted, healthz: 503, livez: 200, ready: 200,
			do: func(s *State, _ *clocktesting.FakePassiveClock) { s.Updated(both...) },
		},
		"the node is being deleted": {
			node: going, healthz: 503, livez: 200, ready: 200,
			do: func(s *State, _ *clocktesting.FakePassiveClock) { s.Updated(both...) },
		},
		"there is no node": {
			healthz: 503, livez: 200, ready: 200,
			do: func(s *State, _ *clocktesting.FakePassiveClock) { s.Updated(both...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(start)
			state := NewState(clock)
			state.SetNode(test.node)
			if test.do != nil {
				test.do(state, clock)
			}
			for path, want := range map[string]int{"/healthz": test.healthz, "/livez": test.livez, "/readyz": test.ready} {
				code, body := ask(t, state.Handler(), path)
				if code != want {
					t.Errorf("%s is %d, want %d: %v", path, code, want, body)
				}
				// Readers of kube-proxy's /healthz look for these.
				if path == "/healthz" && (body["currentTime"] != clock.Now().Format(time.RFC3339Nano) || body["lastUpdated"] == nil) {
					t.Errorf("%s has no timestamps: %v", path, body)
				}
				if test.families != nil && !reflect.DeepEqual(body["status"], test.families) {
					t.Errorf("%s has families %v, want %v", path, body["status"], test.families)
				}
				// Only /healthz is about the node, too.
				if _, has := body["nodeEligible"]; has != (path == "/healthz") {
					t.Errorf("%s has nodeEligible: %t", path, has)
				}
			}
			if got := state.Healthy(); got != (test.livez == 200) {
				t.Errorf("healthy is %t", got)
			}
		})
	}
}

// A load balancer may use a node for a Service while the node reaches an endpoint and stays.
func TestReachOfServices(t *testing.T) {
	node, going := &corev1.Node{}, &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: taintToBeDeleted}}}}
	const unknown = "vicinity-proxy does not serve this Service on this node; vicinity explain svc/web -n shop says which proxy does"
	for name, test := range map[string]struct {
		reach              *Reach
		node               *corev1.Node
		starting, stuck    bool
		code               int
		reachable, known   float64
		eligible, healthy  bool
		withError, another bool
	}{
		"it reaches some":      {reach: &Reach{2, 5}, node: node, code: 200, reachable: 2, known: 5, eligible: true, healthy: true},
		"it reaches none":      {reach: &Reach{0, 5}, node: node, code: 503, known: 5, eligible: true, healthy: true},
		"not served":           {node: node, code: 404, eligible: true, healthy: true, withError: true},
		"another is served":    {reach: &Reach{2, 5}, another: true, node: node, code: 404, eligible: true, healthy: true, withError: true},
		"nothing is known yet": {node: node, starting: true, code: 503, eligible: true, healthy: true},
		"the node leaves":      {reach: &Reach{2, 5}, node: going, code: 503, reachable: 2, known: 5, healthy: true},
		"a change waits":       {reach: &Reach{2, 5}, node: node, stuck: true, code: 503, reachable: 2, known: 5, eligible: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(start)
			state := NewState(clock)
			state.SetNode(test.node)
			if !test.starting {
				state.Updated(corev1.IPv4Protocol)
			}
			if test.stuck {
				state.Queued(corev1.IPv4Protocol)
				clock.SetTime(start.Add(Timeout))
			}
			served := web
			if test.another {
				served.Name = "other"
			}
			state.SetReach(served, &Reach{9, 9})
			state.SetReach(served, test.reach)
			code, body := ask(t, state.Handler(), "/healthz/services/shop/web")
			want := map[string]any{
				"service": map[string]any{"namespace": "shop", "name": "web"}, "reachableEndpoints": test.reachable, "knownEndpoints": test.known,
				"nodeEligible": test.eligible, "serviceProxyHealthy": test.healthy,
			}
			if test.withError {
				want["error"] = unknown
			}
			if code != test.code || !reflect.DeepEqual(body, want) {
				t.Errorf("%d %v, want %d %v", code, body, test.code, want)
			}
		})
	}
}

package cluster

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kit/watcher"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// The addresses of the cluster are known before the first sync, and followed. Addresses of nodes stay when they are no
// longer published.
func TestAddressesAreWatched(t *testing.T) {
	a := clustertest.NewAPI()
	a.Sources[ResourceNodes].Put(aNode("a"))
	a.Sources[ResourceRanges].Put(aRange("kubernetes", "10.96.0.0/16"))
	a.Sources[ResourceConfigMaps].Put(publishedNodes("192.0.2.77", "10.1.9.0/24"))
	w, known := watching(t, a, func(w *Watches) { w.scope.Namespace = "system" })
	eventually(t, "all is ready", func() bool { return w.AreReady() })
	has := func(of string) bool {
		r := known.Reserved(view.Settings{})
		a := netip.MustParseAddr(of)
		return r.ServiceRanges.Contains(a) || r.Nodes.Contains(a) || r.Pods.Contains(a)
	}
	for _, one := range []string{"10.96.0.1", "192.0.2.77", "10.1.9.1", "192.0.2.1", "10.1.0.1"} {
		if !has(one) {
			t.Errorf("%s is not known", one)
		}
	}
	for resource, want := range map[string]int{ResourceRanges: 1, ResourceConfigMaps: 1} {
		if got := known.Count(resource); got != want {
			t.Errorf("%d %s are known, want %d", got, resource, want)
		}
	}
	a.Sources[ResourceRanges].Put(aRange("more", "10.97.0.0/16"))
	eventually(t, "the range is known", func() bool { return has("10.97.0.1") })
	a.Sources[ResourceRanges].Remove(aRange("more"))
	eventually(t, "the range is removed", func() bool { return !has("10.97.0.1") })
	a.Sources[ResourceConfigMaps].Put(publishedNodes("192.0.2.78", ""))
	eventually(t, "another node is known", func() bool { return has("192.0.2.78") && !has("192.0.2.77") })
	empty := publishedNodes("", "")
	empty.Data = nil
	a.Sources[ResourceConfigMaps].Put(empty)
	a.Sources[ResourceConfigMaps].Remove(empty)
	a.Sources[ResourceRanges].Put(aRange("last", "10.98.0.0/16"))
	eventually(t, "the last range is known", func() bool { return has("10.98.0.1") })
	if !has("192.0.2.78") {
		t.Error("the node is forgotten")
	}
}

// If the API lacks the addresses or forbids reading them, Services are served anyway. That is logged once, and the API
// is not asked again and again.
func TestUnknownAddresses(t *testing.T) {
	for name, change := range map[string]func(*clustertest.Source){
		"absent":    func(s *clustertest.Source) { s.Absent = true },
		"forbidden": func(s *clustertest.Source) { s.Forbidden = true },
	} {
		t.Run(name, func(t *testing.T) {
			a := clustertest.NewAPI()
			a.Sources[ResourceNodes].Put(aNode("a"))
			for _, resource := range []string{ResourceRanges, ResourceConfigMaps} {
				change(a.Sources[resource])
			}
			var mu sync.Mutex
			logged := map[string]int{}
			w, known := watching(t, a, func(w *Watches) {
				w.scope.Namespace, w.absentAfter = "system", 0
				w.log = funcr.New(func(_, line string) {
					mu.Lock()
					defer mu.Unlock()
					for _, what := range []string{"The ranges of cluster IPs are unknown", "The addresses of other nodes are unknown"} {
						if strings.Contains(line, what) {
							logged[what]++
						}
					}
				}, funcr.Options{})
			})
			eventually(t, "all is ready", func() bool { return w.AreReady() })
			if r := known.Reserved(view.Settings{}); !r.Nodes.Contains(netip.MustParseAddr("192.0.2.1")) {
				t.Error("the node's own address is not known")
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range logged {
				if n != 1 {
					t.Errorf("%q is logged %d times", what, n)
				}
			}
			if len(logged) != 2 {
				t.Errorf("the log has %v", logged)
			}
			for _, resource := range []string{ResourceRanges, ResourceConfigMaps} {
				if n := a.Sources[resource].Lists(); n != 1 {
					t.Errorf("%s are listed %d times", resource, n)
				}
			}
		})
	}
}

// An API server that does not know a new role yet answers Forbidden for a moment. The start waits for the addresses.
func TestOneForbiddenAnswerIsRetried(t *testing.T) {
	a, unread := clustertest.NewAPI(), 0
	a.Sources[ResourceConfigMaps].Forbidden = true
	lister := NewWatches(nil, nil, Scope{Node: "node-a"}, logr.Discard()).readable(a.NodeAddresses("system"), func(error) { unread++ }).(*watcher.Optional)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := lister.ListWithContext(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the error is %v", err)
	}
	a.Sources[ResourceConfigMaps].Forbidden = false
	if list, err := lister.ListWithContext(ctx, metav1.ListOptions{}); err != nil || list == nil {
		t.Errorf("the second request: %v, %v", list, err)
	}
	if unread > 0 {
		t.Error("after one answer the start continues without the addresses")
	}
	if lister.Again != 10*time.Second || lister.MostAgain != 10*time.Minute {
		t.Errorf("probed again from %s to %s", lister.Again, lister.MostAgain)
	}
}

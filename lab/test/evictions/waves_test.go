package evictions

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// update is the history of two pods in each of two domains. Some pods are evicted and replaced.
type update struct {
	events  []event
	version uint64
}

var twoDomains = map[string]string{"n1": "a", "n2": "b"}

func (u *update) add(e event) {
	u.version++
	e.version, e.pod.labels = u.version, map[string]string{"app": "web"}
	u.events = append(u.events, e)
}

func newUpdate() *update {
	u := &update{}
	u.add(event{list: true})
	for uid, node := range map[types.UID]string{"a1": "n1", "a2": "n1", "b1": "n2", "b2": "n2"} {
		u.add(event{uid: uid, listed: true, pod: pod{node: node, ready: true}})
	}
	return u
}

func (u *update) evict(uid types.UID, node string) {
	u.add(event{uid: uid, pod: pod{node: node, ready: true, evicted: true}})
	u.add(event{uid: uid, pod: pod{node: node, ready: true, evicted: true, terminating: true}})
	u.add(event{uid: uid, gone: true, pod: pod{node: node, evicted: true, terminating: true}})
}

func (u *update) come(uid types.UID, node string) {
	u.add(event{uid: uid, pod: pod{node: node, ready: true}})
}

func TestWaves(t *testing.T) {
	orderly := newUpdate()
	for _, p := range []struct {
		uid  types.UID
		node string
	}{{"a1", "n1"}, {"a2", "n1"}, {"b1", "n2"}} {
		orderly.evict(p.uid, p.node)
		orderly.come(p.uid+"-new", p.node)
	}
	w := waves(orderly.events, map[string]string{"app": "web"}, twoDomains)
	if err := w.Err(Limits{Evictions: 3, Down: 1, Domains: 1, Order: []string{"a", "b"}}); err != nil {
		t.Errorf("an orderly update: %v", err)
	}
	hasty := newUpdate()
	hasty.evict("a1", "n1")
	hasty.evict("a2", "n1")
	hasty.evict("b1", "n2")
	hasty.add(event{uid: "b2", gone: true, pod: pod{node: "n2"}})
	err := waves(hasty.events, map[string]string{"app": "web"}, twoDomains).Err(Limits{Evictions: 1, Down: 1, Domains: 1, Order: []string{"b"}})
	for _, want := range []string{
		"1 pods were deleted without an eviction", "3 pods were evicted, want 1", "2 pods of a domain were down",
		"2 domains had pods down", "updated as a, b, want b",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

package proxy

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// watching starts watches of an API in the background.
func watching(t *testing.T, a *fakeAPI, change func(*watches)) (*watches, *catalogue) {
	known := newCatalogue(clock.RealClock{}, func() {})
	w := newWatches(a, known, "node-a", logr.Discard())
	if change != nil {
		change(w)
	}
	background(t, w.run)
	return w, known
}

// groupNames are those of the Service web.
func groupNames(c *catalogue) []string {
	var names []string
	for _, group := range c.entry(types.NamespacedName{Namespace: "shop", Name: "web"}).groups {
		names = append(names, group.Name)
	}
	slices.Sort(names)
	return names
}

func notFor(group *v1alpha1.EndpointGroup, zones ...string) *v1alpha1.EndpointGroup {
	group.Labels = map[string]string{}
	for _, zone := range zones {
		group.Labels[v1alpha1.LabelNotForPrefix+zone] = "true"
	}
	return group
}

// Nothing is ready before everything is known, and then what watches tell is.
func TestWatches(t *testing.T) {
	a := newFakeAPI()
	held := make(chan struct{})
	a.hold["!not-for.vicinity.dev/a"] = held
	web := aService("web", "10.96.0.1")
	a.sources[resourceServices].put(web)
	a.sources[resourceGroups].put(aGroup("web", "web-1", "10.1.1.1"))
	a.sources[resourceGroups].put(notFor(aGroup("web", "web-b", "10.1.2.1"), "a"))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	a.sources[resourceSlices].put(slice)
	nodes := make(chan *corev1.Node, 100)
	w, known := watching(t, a, func(w *watches) {
		w.withSlices = true
		w.nodeChanged = func(node *corev1.Node) { nodes <- node }
	})
	eventually(t, "Services are known", func() bool { return known.count(resourceServices) == 1 })
	eventually(t, "slices are known", func() bool { return known.count(resourceSlices) == 1 })
	if w.areReady() {
		t.Error("ready without the node")
	}
	a.sources[resourceNodes].put(aNode("a"))
	eventually(t, "the node is known", func() bool { return known.count(resourceNodes) == 1 })
	if w.areReady() {
		t.Error("ready without groups")
	}
	close(held)
	eventually(t, "all is ready", func() bool { return w.areReady() })
	if got := groupNames(known); !slices.Equal(got, []string{"web-1"}) {
		t.Errorf("groups %v", got)
	}
	known.take()

	a.sources[resourceGroups].put(aGroup("web", "web-2", "10.1.1.2"))
	eventually(t, "the new group is known", func() bool { return slices.Equal(groupNames(known), []string{"web-1", "web-2"}) })
	a.sources[resourceGroups].put(notFor(aGroup("web", "web-2", "10.1.1.2"), "a"))
	eventually(t, "the group is kept from the zone", func() bool { return slices.Equal(groupNames(known), []string{"web-1"}) })
	a.sources[resourceSlices].remove(slice)
	eventually(t, "the slice is gone", func() bool { return known.count(resourceSlices) == 0 })
	a.sources[resourceServices].remove(web)
	eventually(t, "the Service is gone", func() bool { return known.count(resourceServices) == 0 })
	a.sources[resourceNodes].remove(aNode("a"))
	for i, there := range []bool{false, true, false} {
		if node := <-nodes; (node != nil) != there {
			t.Errorf("told of node %v, %d", node, i)
		}
	}
	if node, _ := known.position(); node == nil {
		t.Error("rules go on without what was known of the node")
	}
	if taken := known.take(); len(taken.services) != 1 {
		t.Errorf("changed are %v", slices.Collect(maps.Keys(taken.services)))
	}
}

// A node that gets into another zone has groups at any time: those of its old zone, with
// their changes, until all of the new one are known.
func TestZoneChanges(t *testing.T) {
	a := newFakeAPI()
	groups := a.sources[resourceGroups]
	groups.put(notFor(aGroup("web", "web-a", "10.1.1.1"), "b", "c"))
	groups.put(notFor(aGroup("web", "web-b", "10.1.2.1"), "a", "c"))
	groups.put(notFor(aGroup("web", "web-c", "10.1.3.1"), "a", "b"))
	a.sources[resourceNodes].put(aNode("a"))
	heldB, heldC := make(chan struct{}), make(chan struct{})
	a.hold["!not-for.vicinity.dev/b"], a.hold["!not-for.vicinity.dev/c"] = heldB, heldC
	w, known := watching(t, a, nil)
	eventually(t, "all is ready", func() bool { return w.areReady() })
	asked := func(n int) {
		t.Helper()
		eventually(t, "the groups of another zone are asked for", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.selectors) == n
		})
	}
	a.sources[resourceNodes].put(aNode("b"))
	asked(2)
	groups.put(notFor(aGroup("web", "web-a2", "10.1.1.2"), "b", "c"))
	eventually(t, "changes for the old zone are known", func() bool { return slices.Equal(groupNames(known), []string{"web-a", "web-a2"}) })

	// It changes its mind.
	a.sources[resourceNodes].put(aNode("c"))
	asked(3)
	close(heldB)
	if _, zone := known.position(); zone != "a" {
		t.Errorf("the groups are those of zone %s", zone)
	}
	known.take()
	close(heldC)
	eventually(t, "the groups are those of zone c", func() bool {
		_, zone := known.position()
		got := groupNames(known)
		if zone == "a" && !slices.Equal(got, []string{"web-a", "web-a2"}) && !slices.Equal(got, []string{"web-c"}) {
			t.Fatalf("groups %v on the way", got)
		}
		return zone == "c"
	})
	if got := groupNames(known); !slices.Equal(got, []string{"web-c"}) {
		t.Errorf("groups %v", got)
	}
	if taken := known.take(); !taken.node || !taken.anew {
		t.Error("that the zone is another is not told")
	}
	eventually(t, "only one watch of groups is left", func() bool { return groups.watching() == 1 })
	groups.put(notFor(aGroup("web", "web-c2", "10.1.3.2"), "a", "b"))
	groups.put(notFor(aGroup("web", "web-a3", "10.1.1.3"), "b", "c"))
	eventually(t, "changes for the new zone are known", func() bool { return slices.Equal(groupNames(known), []string{"web-c", "web-c2"}) })

	// Without a zone it sees all.
	a.sources[resourceNodes].put(aNode(""))
	eventually(t, "all groups are known", func() bool { return len(groupNames(known)) == 6 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if got := a.selectors[len(a.selectors)-1]; got != "" {
		t.Errorf("the selector is %q", got)
	}
}

// What a watch tells that does not count any more, or not yet, is not heard.
func TestWatchesThatDoNotCount(t *testing.T) {
	a := newFakeAPI()
	known := newCatalogue(clock.RealClock{}, func() {})
	w := newWatches(a, known, "node-a", logr.Discard())
	stop := func() {}
	current, next, left := &groupWatch{zone: "a", stop: stop}, &groupWatch{zone: "b", stop: stop}, &groupWatch{zone: "c", stop: stop}
	w.current, w.next = current, next
	group := aGroup("web", "web-1", "10.1.1.1")
	group.ResourceVersion = "5"
	for name, of := range map[string]*groupWatch{"next": next, "left": left} {
		if err := w.groupStore(of).Add(group); err != nil || known.count(resourceGroups) != 0 {
			t.Errorf("%s: heard of a group: %v", name, err)
		}
	}
	if err := w.groupStore(left).Replace([]any{group}, "6"); err != nil || known.count(resourceGroups) != 0 {
		t.Errorf("heard of a list of a watch that was left: %v", err)
	}
	if err := w.groupStore(next).Replace([]any{group}, "6"); err != nil || known.count(resourceGroups) != 1 || w.current != next || w.next != nil {
		t.Errorf("not heard of a list: %v", err)
	}
	if err := w.groupStore(current).Delete(group); err != nil || known.count(resourceGroups) != 1 {
		t.Errorf("heard that a group is gone: %v", err)
	}
	if err := w.groupStore(next).Delete(group); err != nil || known.count(resourceGroups) != 0 {
		t.Errorf("not heard that a group is gone: %v", err)
	}
	if err := w.groupStore(next).Add("nonsense"); err == nil {
		t.Error("something else is taken for a group")
	}
}

// Where the API does not have groups, slices will do if they are watched.
func TestAPIWithoutGroups(t *testing.T) {
	a := newFakeAPI()
	a.sources[resourceGroups].absent = true
	a.sources[resourceNodes].put(aNode("a"))
	all, _ := watching(t, a, func(w *watches) { w.withSlices, w.absentAfter = true, time.Millisecond })
	some, _ := watching(t, a, nil)
	eventually(t, "all Services can be served", func() bool { return all.areReady() })
	if some.areReady() {
		t.Error("ready without groups, though there is nothing else")
	}
}

func TestListingsThatAreTheSame(t *testing.T) {
	c := newCatalogue(clock.RealClock{}, func() {})
	service, group := aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1")
	service.ResourceVersion, group.ResourceVersion = "1", "2"
	replace := func(version string) int {
		c.fill(func() {
			c.replaceServices([]*corev1.Service{service}, version)
			c.replaceGroups([]*v1alpha1.EndpointGroup{group}, version, "a")
			c.replaceSlices(nil, version)
		})
		return len(c.take().services)
	}
	if got := replace("5"); got != 1 {
		t.Errorf("%d Services are new", got)
	}
	if got := replace("6"); got != 0 {
		t.Errorf("%d Services have changed though they are the same", got)
	}
	if got := replace("3"); got != 1 {
		t.Errorf("%d Services have changed in a cluster that was restored", got)
	}
	c.fill(func() { c.replaceServices(nil, "7") })
	if got := len(c.take().services); got != 1 || c.count(resourceServices) != 0 {
		t.Errorf("%d Services went, %d are left", got, c.count(resourceServices))
	}
}

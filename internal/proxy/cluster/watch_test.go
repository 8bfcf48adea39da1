package cluster

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
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// watching starts watches of an API in the background.
func watching(t *testing.T, a *clustertest.API, change func(*Watches)) (*Watches, *Catalogue) {
	known := NewCatalogue(clock.RealClock{}, func() {})
	w := NewWatches(a, known, Scope{Node: "node-a"}, logr.Discard())
	if change != nil {
		change(w)
	}
	background(t, w.Run)
	return w, known
}

// groupNames returns the groups of the Service web.
func groupNames(c *Catalogue) []string {
	var names []string
	for _, group := range c.Entry(types.NamespacedName{Namespace: "shop", Name: "web"}).Groups {
		names = append(names, group.Name)
	}
	slices.Sort(names)
	return names
}

// forDNS marks a group of a headless Service.
func forDNS(group *v1alpha1.EndpointGroup) *v1alpha1.EndpointGroup {
	group.Labels = map[string]string{corev1.IsHeadlessService: ""}
	return group
}

// Watches are ready after all lists, and then follow changes.
func TestWatches(t *testing.T) {
	a := clustertest.NewAPI()
	held := make(chan struct{})
	a.Hold[view.GroupSelector("a")] = held
	web := aService("web", "10.96.0.1")
	a.Sources[ResourceServices].Put(web)
	a.Sources[ResourceGroups].Put(aGroup("web", "web-1", "10.1.1.1"))
	a.Sources[ResourceGroups].Put(notFor(aGroup("web", "web-b", "10.1.2.1"), "a"))
	a.Sources[ResourceGroups].Put(forDNS(aGroup("db", "db-1", "10.1.3.1")))
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	a.Sources[ResourceSlices].Put(slice)
	nodes := make(chan *corev1.Node, 100)
	w, known := watching(t, a, func(w *Watches) {
		w.scope.Slices = true
		w.NodeChanged = func(node *corev1.Node) { nodes <- node }
	})
	eventually(t, "Services are known", func() bool { return known.Count(ResourceServices) == 1 })
	eventually(t, "slices are known", func() bool { return known.Count(ResourceSlices) == 1 })
	if node := <-nodes; node != nil {
		t.Errorf("node %v was reported before it exists", node)
	}
	if w.AreReady() {
		t.Error("ready without the node")
	}
	a.Sources[ResourceNodes].Put(aNode("a"))
	eventually(t, "the node is known", func() bool { return known.Count(ResourceNodes) == 1 })
	if w.AreReady() {
		t.Error("ready without groups")
	}
	close(held)
	eventually(t, "all is ready", func() bool { return w.AreReady() })
	if got := groupNames(known); !slices.Equal(got, []string{"web-1"}) {
		t.Errorf("groups %v", got)
	}
	known.Take()

	a.Sources[ResourceGroups].Put(aGroup("web", "web-2", "10.1.1.2"))
	eventually(t, "the new group is known", func() bool { return slices.Equal(groupNames(known), []string{"web-1", "web-2"}) })
	a.Sources[ResourceGroups].Put(notFor(aGroup("web", "web-2", "10.1.1.2"), "a"))
	eventually(t, "the group excludes the zone", func() bool { return slices.Equal(groupNames(known), []string{"web-1"}) })
	a.Sources[ResourceGroups].Put(aGroup("web", "web-2", "10.1.1.2"))
	eventually(t, "the zone has it again", func() bool { return slices.Equal(groupNames(known), []string{"web-1", "web-2"}) })
	a.Sources[ResourceGroups].Put(forDNS(aGroup("web", "web-2", "10.1.1.2")))
	eventually(t, "the group belongs to a headless Service", func() bool { return slices.Equal(groupNames(known), []string{"web-1"}) })
	a.Sources[ResourceSlices].Remove(slice)
	eventually(t, "the slice is removed", func() bool { return known.Count(ResourceSlices) == 0 })
	a.Sources[ResourceServices].Remove(web)
	eventually(t, "the Service is removed", func() bool { return known.Count(ResourceServices) == 0 })
	a.Sources[ResourceNodes].Remove(aNode("a"))
	for i, there := range []bool{true, false} {
		if node := <-nodes; (node != nil) != there {
			t.Errorf("node %v was reported, %d", node, i)
		}
	}
	if node, _ := known.Position(); node == nil {
		t.Error("rules are written without the known node")
	}
	if taken := known.Take(); len(taken.Services) != 1 {
		t.Errorf("changed are %v", slices.Collect(maps.Keys(taken.Services)))
	}
}

// A node that moves to another zone always has groups: those of its old zone, with their changes, until the new ones
// are listed.
func TestZoneChanges(t *testing.T) {
	a := clustertest.NewAPI()
	groups := a.Sources[ResourceGroups]
	groups.Put(notFor(aGroup("web", "web-a", "10.1.1.1"), "b", "c"))
	groups.Put(notFor(aGroup("web", "web-b", "10.1.2.1"), "a", "c"))
	groups.Put(notFor(aGroup("web", "web-c", "10.1.3.1"), "a", "b"))
	a.Sources[ResourceNodes].Put(aNode("a"))
	heldB, heldC := make(chan struct{}), make(chan struct{})
	a.Hold[view.GroupSelector("b")], a.Hold[view.GroupSelector("c")] = heldB, heldC
	w, known := watching(t, a, nil)
	eventually(t, "all is ready", func() bool { return w.AreReady() })
	asked := func(n int) {
		t.Helper()
		eventually(t, "the groups of another zone are requested", func() bool {
			a.Lock()
			defer a.Unlock()
			return len(a.Selectors) == n
		})
	}
	a.Sources[ResourceNodes].Put(aNode("b"))
	asked(2)
	groups.Put(notFor(aGroup("web", "web-a2", "10.1.1.2"), "b", "c"))
	eventually(t, "changes for the old zone are known", func() bool { return slices.Equal(groupNames(known), []string{"web-a", "web-a2"}) })

	// It changes its mind.
	a.Sources[ResourceNodes].Put(aNode("c"))
	asked(3)
	close(heldB)
	if _, zone := known.Position(); zone != "a" {
		t.Errorf("the groups are those of zone %s", zone)
	}
	known.Take()
	close(heldC)
	eventually(t, "the groups are those of zone c", func() bool {
		_, zone := known.Position()
		got := groupNames(known)
		if zone == "a" && !slices.Equal(got, []string{"web-a", "web-a2"}) && !slices.Equal(got, []string{"web-c"}) {
			t.Fatalf("groups %v on the way", got)
		}
		return zone == "c"
	})
	if got := groupNames(known); !slices.Equal(got, []string{"web-c"}) {
		t.Errorf("groups %v", got)
	}
	if taken := known.Take(); !taken.Node || !taken.VersionsReset {
		t.Error("the new zone is not reported")
	}
	eventually(t, "only one watch of groups remains", func() bool { return groups.Watching() == 1 })
	groups.Put(notFor(aGroup("web", "web-c2", "10.1.3.2"), "a", "b"))
	groups.Put(notFor(aGroup("web", "web-a3", "10.1.1.3"), "b", "c"))
	eventually(t, "changes for the new zone are known", func() bool { return slices.Equal(groupNames(known), []string{"web-c", "web-c2"}) })

	// Without a zone it sees all.
	a.Sources[ResourceNodes].Put(aNode(""))
	eventually(t, "all groups are known", func() bool { return len(groupNames(known)) == 6 })
	a.Lock()
	defer a.Unlock()
	if got := a.Selectors[len(a.Selectors)-1]; got != view.GroupSelector("") {
		t.Errorf("the selector is %q", got)
	}
}

// A watch that was replaced before its first list changes nothing.
func TestReplacedWatchesDoNotCount(t *testing.T) {
	known := NewCatalogue(clock.RealClock{}, func() {})
	w := NewWatches(clustertest.NewAPI(), known, Scope{Node: "node-a"}, logr.Discard())
	stop := func() {}
	w.current, w.next = &groupWatch{zone: "a", stop: stop}, &groupWatch{zone: "b", stop: stop}
	replaced := w.groupStore(&groupWatch{zone: "c", stop: stop})
	group := aGroup("web", "web-1", "10.1.1.1")
	if replaced.Set(group); known.Count(ResourceGroups) != 0 {
		t.Error("the group of a replaced watch counts")
	}
	if replaced.Replace([]*v1alpha1.EndpointGroup{group}, "6"); known.Count(ResourceGroups) != 0 {
		t.Error("the list of a replaced watch counts")
	}
}

// An API without groups is accepted if slices are watched.
func TestAPIWithoutGroups(t *testing.T) {
	a := clustertest.NewAPI()
	a.Sources[ResourceGroups].Absent = true
	a.Sources[ResourceNodes].Put(aNode("a"))
	all, _ := watching(t, a, func(w *Watches) { w.scope.Slices, w.absentAfter = true, time.Millisecond })
	some, _ := watching(t, a, nil)
	eventually(t, "all Services can be served", func() bool { return all.AreReady() })
	if some.AreReady() {
		t.Error("ready without groups, though there is nothing else")
	}
}

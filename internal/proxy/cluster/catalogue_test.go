package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// notice is called before a change can be taken: a later notice would look like a waiting change.
func TestNoticeComesBeforeTake(t *testing.T) {
	notified, taken := false, false
	var c *Catalogue
	c = NewCatalogue(clock.RealClock{}, func() {
		if c.mu.TryLock() {
			taken = true
			c.mu.Unlock()
		}
		notified = true
	})
	c.Fill(func() { c.SetService(aService("web", "10.96.0.1")) })
	if !notified || taken {
		t.Errorf("notified: %t, available before: %t", notified, taken)
	}
}

// After a restore of the cluster, a changed object may have an old resource version.
func TestRestoredObjectsAreReadAgain(t *testing.T) {
	c := NewCatalogue(clock.RealClock{}, func() {})
	fill := func(address, version string) {
		service, slice := aService("web", address), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
		service.ResourceVersion, slice.ResourceVersion = "5", "5"
		c.Fill(func() {
			c.replaceServices([]*corev1.Service{service}, version)
			c.replaceSlices([]*discoveryv1.EndpointSlice{slice}, version)
		})
	}
	fill("10.96.0.1", "9")
	fill("10.96.0.2", "6")
	entry := c.Entry(types.NamespacedName{Namespace: "shop", Name: "web"})
	if got := entry.Service.Spec.ClusterIP; got != "10.96.0.2" {
		t.Errorf("the Service still has the address %s", got)
	}
	if len(entry.Slices) != 1 || entry.Slices[0].Endpoints[0].Addresses[0] != "10.96.0.2" {
		t.Errorf("the slices are %v", entry.Slices)
	}
}

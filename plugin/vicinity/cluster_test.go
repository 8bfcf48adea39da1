package vicinity

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names"
)

// largeService has a group of 1,000 endpoints, and slices of 100 of them each.
func largeService() (group *v1alpha1.EndpointGroup, slices []*discoveryv1.EndpointSlice) {
	group = &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	group.Spec = v1alpha1.EndpointGroupSpec{Service: "web", AddressType: corev1.IPv4Protocol, Tiers: []string{zone, "*"}}
	for i := range 10 {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
		for j := range 100 {
			address := fmt.Sprintf("10.0.%d.%d", i, j)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Zone: new("a")})
			group.Spec.Endpoints = append(group.Spec.Endpoints, v1alpha1.GroupEndpoint{Address: address, Zone: "a"})
		}
		slices = append(slices, slice)
	}
	return group, slices
}

// While resources are listed, Services are not made: that would be once for each slice.
func TestListedAtOnce(t *testing.T) {
	c := newCluster()
	c.pace = 0
	c.missing.Store(2)
	group, slices := largeService()
	c.setGroup(group)
	for _, slice := range slices {
		c.setSlice(slice)
	}
	c.listed()
	if c.synced() || c.service("web.shop") != nil {
		t.Error("it is made before all is listed")
	}
	c.listed()
	if s := c.service("web.shop"); !c.synced() || s == nil || len(s.Ready[names.V4]) != 1000 {
		t.Errorf("once all is listed it is %+v", s)
	}
}

// A burst of changes makes a Service anew once, and soon.
func TestBursts(t *testing.T) {
	group, slices := largeService()
	c := newCluster()
	c.missing.Store(1)
	c.setGroup(group)
	c.listed()
	before := c.service("web.shop")
	c.pace = time.Hour
	for _, slice := range slices {
		c.setSlice(slice)
	}
	if c.service("web.shop") != before {
		t.Error("it was made anew within a burst")
	}

	c = newCluster()
	c.missing.Store(1)
	c.setGroup(group)
	c.listed()
	for _, slice := range slices {
		c.setSlice(slice)
	}
	for end := time.Now().Add(10 * time.Second); len(c.service("web.shop").Ready[names.V4]) != 1000; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("changes are not seen")
		}
	}
	c.deleteGroup("shop", "web", "web")
	for end := time.Now().Add(10 * time.Second); c.service("web.shop") != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the end of the groups is not seen")
		}
	}
}

// BenchmarkLargeService lists a Service of 1,000 endpoints in 10 slices, and changes one slice, and all.
func BenchmarkLargeService(b *testing.B) {
	group, slices := largeService()
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			c := newCluster()
			c.missing.Store(1)
			c.setGroup(group)
			for _, slice := range slices {
				c.setSlice(slice)
			}
			c.listed()
		}
	})
	for _, changed := range []int{1, 10} {
		b.Run(fmt.Sprintf("change/%d", changed), func(b *testing.B) {
			c := newCluster()
			c.setGroup(group)
			for _, slice := range slices {
				c.setSlice(slice)
			}
			c.pace = time.Hour
			for b.Loop() {
				for _, slice := range slices[:changed] {
					c.setSlice(slice)
				}
				c.remake()
			}
		})
	}
}

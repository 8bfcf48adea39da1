package vicinity

import (
	"fmt"
	"testing"

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

// A query sees all changes before it, and a Service is made once for all of them.
func TestServiceIsMadeOnce(t *testing.T) {
	c := newCluster()
	group, slices := largeService()
	c.setGroup(group)
	if s := c.service("web.shop"); s == nil || s.Sliced {
		t.Fatalf("with a group alone it is %+v", s)
	}
	for i, slice := range slices {
		c.setSlice(slice)
		if i%3 == 0 {
			if s := c.service("web.shop"); s == nil || len(s.Ready[names.V4]) != 100*(i+1) {
				t.Fatalf("with %d slices it is %+v", i+1, s)
			}
		}
	}
	if s := c.service("web.shop"); s != c.service("Web.Shop") {
		t.Error("without a change it is made anew")
	}
	c.deleteGroup("shop", "web", "web")
	if c.service("web.shop") != nil {
		t.Error("it is there without groups")
	}
	for _, slice := range slices {
		c.deleteSlice("shop", "web", slice.Name)
	}
	if len(c.parts) > 0 {
		t.Errorf("left are the parts %v", c.parts)
	}
}

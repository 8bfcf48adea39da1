package endpoint

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// FuzzChoose reads a group as the DNS server does. The choice covers each requested address, does
// not depend on their order, and is empty only where hard tiers ask for that.
func FuzzChoose(f *testing.F) {
	for _, spec := range []string{
		`{"addressType":"IPv4","endpoints":[{"address":"10.1.0.1","zone":"a"},{"address":"10.1.0.2","zone":"b"}],"consumers":[{"zone":"a"}],"tiers":["topology.kubernetes.io/zone","*"]}`,
		`{"addressType":"IPv4","endpoints":[{"address":"10.1.0.1","notReady":true},{"address":"10.1.0.1"}],"localOnly":true}`,
		`{"addressType":"IPv4","endpoints":[{"address":"x"},{"address":""},{"address":"::ffff:10.1.0.1"}],"tiers":["","rack"]}`,
		`{"addressType":"IPv4","endpoints":[{"address":"10.1.0.1","domains":{"rack":""}}],"consumers":[{"zone":"b","weight":-1}],"tiers":["rack"]}`,
	} {
		f.Add(spec, "a", "rack", "1")
	}
	f.Fuzz(func(t *testing.T, spec, zone, key, value string) {
		group := &v1alpha1.EndpointGroup{}
		if json.Unmarshal([]byte(spec), &group.Spec) != nil {
			return
		}
		before := group.DeepCopy()
		endpoints := NewSet(corev1.IPv4Protocol, []*v1alpha1.EndpointGroup{group}, nil)
		if (endpoints == nil) != (group.Spec.AddressType != corev1.IPv4Protocol) {
			t.Fatalf("endpoints of the family %q: %v", group.Spec.AddressType, endpoints)
		}
		if endpoints == nil {
			return
		}
		asked := []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")}
		client := Client{Zone: zone, Labels: map[string]string{key: value}}
		chosen := endpoints.Choose(client, asked)
		count := 0
		for _, takes := range chosen.Takes {
			if takes {
				count++
			}
		}
		if len(chosen.Takes) != len(asked) || count != chosen.Count || chosen.All && count != len(asked) {
			t.Fatalf("of %d addresses %+v", len(asked), chosen)
		}
		if chosen.Count == 0 && !chosen.Hard {
			t.Fatalf("the client gets nothing, and nothing asks for that: %+v", chosen)
		}
		if len(group.Spec.Endpoints) == 0 && !chosen.Hard && count != len(asked) {
			t.Fatalf("no group knows an endpoint, and %+v", chosen)
		}
		slices.Reverse(asked)
		again := endpoints.Choose(client, asked)
		slices.Reverse(again.Takes)
		if !slices.Equal(again.Takes, chosen.Takes) || again.All != chosen.All {
			t.Fatalf("%+v, in another order %+v", chosen, again)
		}
		if !reflect.DeepEqual(group, before) {
			t.Fatal("the group is changed")
		}
	})
}

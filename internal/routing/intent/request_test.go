package intent

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// service makes a Service labelled app=web from lines like "same-zone=Prefer",
// "gardener=true", "distribution=PreferClose" and "external=Local".
func service(lines ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", Annotations: map[string]string{}, Labels: map[string]string{"app": "web"},
	}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "same-node", "same-zone", "same-region":
			s.Annotations["endpointslice.kubernetes.io/"+name] = value
		case "keys":
			s.Annotations["vicinity.dev/topology-keys"] = value
		case "mode":
			s.Annotations["service.kubernetes.io/topology-mode"] = value
		case "hints":
			s.Annotations["service.kubernetes.io/topology-aware-hints"] = value
		case "gardener":
			s.Labels["endpoint-slice-hints.resources.gardener.cloud/consider"] = value
		case "proxy":
			s.Annotations["vicinity.dev/proxy"] = value
		case "served-by":
			s.Labels["service.kubernetes.io/service-proxy-name"] = value
		case "external":
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(value)
		case "distribution":
			s.Spec.TrafficDistribution = &value
		}
	}
	return s
}

const (
	node   = topology.Hostname
	zone   = topology.Zone
	region = topology.Region
	all    = topology.Anywhere
)

func TestRequestOfServicesWithoutAPlan(t *testing.T) {
	local, cluster := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyCluster
	for _, test := range []struct {
		spec corev1.ServiceSpec
		want string
	}{
		{corev1.ServiceSpec{ClusterIP: "10.0.0.1", InternalTrafficPolicy: &cluster}, ""},
		{
			corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "old.example.com"},
			`type ExternalName: the Service is a name for "old.example.com" and has no endpoints`,
		},
		{
			corev1.ServiceSpec{InternalTrafficPolicy: &local},
			"internalTrafficPolicy: Local: each node uses its own endpoints only, so there is nothing to divide",
		},
	} {
		s := service("same-zone=Prefer")
		s.Spec = test.spec
		got := RequestOf(s, nil, Options{})
		if got.NoPlan != test.want {
			t.Errorf("got %q, want %q", got.NoPlan, test.want)
		}
		if got.Source != "annotation endpointslice.kubernetes.io/same-zone: Prefer" {
			t.Errorf("what is asked for is lost: %q", got.Source)
		}
	}
}

func TestRequestOfTakesOverAuto(t *testing.T) {
	for _, written := range []string{"mode=Auto", "hints=auto"} {
		got := RequestOf(service(written), nil, Options{TakeOverAuto: true})
		if got.Upstream || !reflect.DeepEqual(got.Intent.Bound, new(allocate.DefaultBound(allocate.Auto))) || got.Capacity != AutoCapacity() {
			t.Errorf("%s: %+v", written, got)
		}
	}
	if got := RequestOf(service("distribution=PreferClose"), nil, Options{TakeOverAuto: true}); !got.Upstream {
		t.Error("spec.trafficDistribution is taken over too")
	}
}

// Users of Gardener have manifests with the label, and with the annotation for clusters that do not know the label.
func TestRequestOfGardenersManifest(t *testing.T) {
	got := RequestOf(&corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "shoot--garden--local",
		Name:        "etcd-client",
		Annotations: map[string]string{"service.kubernetes.io/topology-aware-hints": "auto"},
		Labels:      map[string]string{"app": "etcd-statefulset", "endpoint-slice-hints.resources.gardener.cloud/consider": "true"},
	}}, nil, Options{})
	want := Request{
		Intent:   allocate.Intent{Tiers: topology.Tiers{zone, all}},
		Approach: ApproachPrefer,
		Capacity: Capacity{Type: CapacityNodes},
		Source:   `label endpoint-slice-hints.resources.gardener.cloud/consider: "true"`,
		OwnZone:  true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

func TestParseTopologyKeys(t *testing.T) {
	for _, test := range []struct {
		list, err string
		want      topology.Tiers
	}{
		{list: ""},
		{list: " topology.kubernetes.io/zone , * ", want: topology.Tiers{zone, all}},
		{list: "rack", want: topology.Tiers{"rack"}},
		{
			list: "example.com/rack,-rack",
			err:  `topology keys: "-rack" is not a label key: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		},
		{
			list: "/rack",
			err:  `topology keys: "/rack" is not a label key: prefix part must be non-empty`,
		},
		{
			list: "rack,rack",
			err:  `topology keys: "rack" is given twice, the second time as key 2 of 2; each key may appear once`,
		},
	} {
		got, err := ParseTopologyKeys(test.list)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%q: got error %v\nwant %s", test.list, err, test.err)
			}
		case err != nil || !reflect.DeepEqual(got, test.want):
			t.Errorf("%q: got %q, %v; want %q", test.list, got, err, test.want)
		}
	}
}

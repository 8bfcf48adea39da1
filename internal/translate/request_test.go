package translate

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

func TestRequestOf(t *testing.T) {
	const (
		sameNode   = "endpointslice.kubernetes.io/same-node"
		sameZone   = "endpointslice.kubernetes.io/same-zone"
		sameRegion = "endpointslice.kubernetes.io/same-region"
		mode       = "annotation service.kubernetes.io/topology-mode: "
		older      = "annotation service.kubernetes.io/topology-aware-hints: "
		gardener   = `label endpoint-slice-hints.resources.gardener.cloud/consider: "true"`
	)
	optimal, auto := new(allocate.DefaultBound(DefaultAlgorithm(false))), new(allocate.DefaultBound(allocate.Auto))
	for _, test := range []struct {
		written  string
		tiers    topology.Tiers
		bound    *allocate.Bound
		source   string
		approach Approach // Balanced, Require or Prefer, as the tiers are, unless it is given
		upstream bool
		ownZone  bool
		groups   bool
		warnings []string
	}{
		// Nothing, or nothing that makes sense.
		{written: ""},
		{
			written:  "same-zone=prefer",
			warnings: []string{"annotation " + sameZone + `: "prefer" is unknown; allowed are Balanced, Prefer and Require`},
		},
		{written: "same-node=Balanced"},
		{written: "gardener=false"},
		{written: "mode=Disabled"},
		{
			written:  "distribution=PreferFar",
			warnings: []string{`spec.trafficDistribution: "PreferFar" is unknown; allowed are PreferSameZone, PreferSameNode and PreferClose`},
		},

		// same-zone, alone and with the levels around it.
		{written: "same-zone=Balanced", source: "annotation " + sameZone + ": Balanced"},
		{written: "same-zone=Prefer", tiers: topology.Tiers{zone, all}, bound: optimal, source: "annotation " + sameZone + ": Prefer"},
		{written: "same-zone=Require", tiers: topology.Tiers{zone}, source: "annotation " + sameZone + ": Require"},
		{written: "same-node=Prefer", tiers: topology.Tiers{node, all}, source: "annotation " + sameNode + ": Prefer"},
		{written: "same-region=Prefer", tiers: topology.Tiers{region, all}, source: "annotation " + sameRegion + ": Prefer"},
		{
			written: "same-node=Prefer same-zone=Prefer", tiers: topology.Tiers{node, zone, all}, bound: optimal,
			source: "annotations " + sameNode + ": Prefer, " + sameZone + ": Prefer",
		},
		{
			written: "same-zone=Prefer same-region=Require", tiers: topology.Tiers{zone, region}, bound: optimal,
			source: "annotations " + sameZone + ": Prefer, " + sameRegion + ": Require",
		},
		{
			written: "same-node=Prefer same-zone=Prefer same-region=Require", tiers: topology.Tiers{node, zone, region}, bound: optimal,
			source: "annotations " + sameNode + ": Prefer, " + sameZone + ": Prefer, " + sameRegion + ": Require",
		},
		{
			// To require a level is to require the wider ones.
			written: "same-node=Require same-zone=Prefer", tiers: topology.Tiers{node},
			source: "annotations " + sameNode + ": Require, " + sameZone + ": Prefer",
		},
		{
			written: "same-node=Sometimes same-zone=Prefer", tiers: topology.Tiers{zone, all}, bound: optimal,
			source:   "annotation " + sameZone + ": Prefer",
			warnings: []string{"annotation " + sameNode + `: "Sometimes" is unknown; allowed are Balanced, Prefer and Require`},
		},
		{
			written:  "same-zone=Balanced same-node=Prefer",
			source:   "annotation " + sameZone + ": Balanced",
			warnings: []string{"annotation " + sameNode + ": Prefer has no effect: annotation " + sameZone + ": Balanced comes first"},
		},

		// The other rows.
		{
			written: "keys=kubernetes.io/hostname,example.com/rack,*", tiers: topology.Tiers{node, "example.com/rack", all},
			source:   `annotation vicinity.dev/topology-keys: "kubernetes.io/hostname,example.com/rack,*"`,
			approach: ApproachKeys,
		},
		{written: "keys=", source: `annotation vicinity.dev/topology-keys: ""`, approach: ApproachKeys},
		{written: "keys= external=Local", source: `annotation vicinity.dev/topology-keys: ""`, approach: ApproachKeys},
		{
			written:  "keys=topology.kubernetes.io/zone external=Local",
			warnings: []string{`annotation vicinity.dev/topology-keys: "topology.kubernetes.io/zone" cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`},
		},
		{
			written: "same-zone=Prefer external=Local", tiers: topology.Tiers{zone, all}, bound: optimal,
			source: "annotation " + sameZone + ": Prefer",
		},
		{
			written:  "keys=*,example.com/rack",
			warnings: []string{`annotation vicinity.dev/topology-keys: topology keys: "*" is key 1 of 2; it matches everything and must be the last`},
		},
		{
			written:  "mode=vicinity.dev/near",
			warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "near" is known in namespace "shop"`},
		},
		{written: "gardener=true", tiers: topology.Tiers{zone, all}, source: gardener, ownZone: true},
		{written: "mode=Auto", tiers: topology.Tiers{zone, all}, bound: auto, source: mode + "Auto", upstream: true},
		{written: "hints=Auto mode=Disabled", tiers: topology.Tiers{zone, all}, bound: auto, source: older + "Auto", upstream: true},
		{written: "hints=Disabled mode=Auto"},
		{
			written:  "mode=auTo",
			warnings: []string{`annotation service.kubernetes.io/topology-mode: "auTo" is unknown; allowed are Auto, Disabled and, in service.kubernetes.io/topology-mode, vicinity.dev/NAME for a RoutingPolicy`},
		},
		{
			written:  "hints=true",
			warnings: []string{`annotation service.kubernetes.io/topology-aware-hints: "true" is unknown; allowed are Auto, Disabled and, in service.kubernetes.io/topology-mode, vicinity.dev/NAME for a RoutingPolicy`},
		},
		{written: "mode=example.com/theirs"},
		{
			// The older name counts for Kubernetes, too.
			written:  "hints=vicinity.dev/near mode=Auto",
			warnings: []string{`annotation service.kubernetes.io/topology-aware-hints: "vicinity.dev/near" has no effect; a RoutingPolicy is named in service.kubernetes.io/topology-mode`},
		},

		// Who serves the Service is another matter.
		{
			written: "same-zone=Require proxy=true", tiers: topology.Tiers{zone}, groups: true,
			source: "annotation " + sameZone + ": Require",
		},
		{written: "proxy=true", groups: true},
		{
			written:  "proxy=true served-by=theirs",
			warnings: []string{`annotation vicinity.dev/proxy: true has no effect: label service.kubernetes.io/service-proxy-name gives the Service to "theirs"`},
		},
		{written: "proxy=false served-by=theirs"},
		{written: "proxy=yes", warnings: []string{`annotation vicinity.dev/proxy: "yes" is unknown; allowed are true and false`}},
		{written: "distribution=PreferSameZone", tiers: topology.Tiers{zone, all}, source: "spec.trafficDistribution: PreferSameZone", upstream: true},
		{written: "distribution=PreferSameNode", tiers: topology.Tiers{node, zone, all}, source: "spec.trafficDistribution: PreferSameNode", upstream: true},

		// Each row goes before the ones below it; what does not make sense before none.
		{
			written: "same-zone=Prefer mode=Auto", tiers: topology.Tiers{zone, all}, bound: optimal,
			source:   "annotation " + sameZone + ": Prefer",
			warnings: []string{mode + "Auto has no effect: annotation " + sameZone + ": Prefer comes first"},
		},
		{
			written: "keys=* gardener=true", tiers: topology.Tiers{all},
			source:   `annotation vicinity.dev/topology-keys: "*"`,
			approach: ApproachKeys,
			warnings: []string{gardener + ` has no effect: annotation vicinity.dev/topology-keys: "*" comes first`},
		},
		{
			written: "gardener=true distribution=PreferSameNode", tiers: topology.Tiers{zone, all}, source: gardener, ownZone: true,
			warnings: []string{"spec.trafficDistribution: PreferSameNode has no effect: " + gardener + " comes first"},
		},
		{
			written: "mode=Auto distribution=PreferClose", tiers: topology.Tiers{zone, all}, bound: auto, source: mode + "Auto", upstream: true,
			warnings: []string{"spec.trafficDistribution: PreferClose has no effect: " + mode + "Auto comes first"},
		},
		{
			written: "same-zone=Near keys=, mode=Auto", tiers: topology.Tiers{zone, all}, bound: auto, source: mode + "Auto", upstream: true,
			warnings: []string{
				"annotation " + sameZone + `: "Near" is unknown; allowed are Balanced, Prefer and Require`,
				`annotation vicinity.dev/topology-keys: topology keys: key 1 of 2 is empty; each must be a node label key, or "*" as the last`,
			},
		},
		{
			written: "mode=vicinity.dev/near hints=auto", tiers: topology.Tiers{zone, all}, bound: auto, source: older + "auto", upstream: true,
			warnings: []string{`annotation service.kubernetes.io/topology-mode: no RoutingPolicy "near" is known in namespace "shop"`},
		},
	} {
		t.Run(test.written, func(t *testing.T) {
			given := service(strings.Fields(test.written)...)
			before := given.DeepCopy()
			got := RequestOf(given, nil, Options{})
			want := Request{
				Intent: allocate.Intent{Tiers: test.tiers, Bound: test.bound}, Capacity: Capacity{Type: CapacityNodes},
				Source: test.source, Upstream: test.upstream, Warnings: test.warnings,
				Approach: test.approach, OwnZone: test.ownZone, Groups: test.groups,
			}
			switch {
			case test.bound == auto:
				want.Capacity, want.Approach = AutoCapacity(), ApproachAuto
			case want.Approach != "":
			case len(test.tiers) == 0:
				want.Approach = ApproachBalanced
			case test.tiers[len(test.tiers)-1] == all:
				want.Approach = ApproachPrefer
			default:
				want.Approach = ApproachRequire
			}
			got.unnamed = false
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
			if err := got.Intent.Validate(); err != nil {
				t.Errorf("the intent is not valid: %v", err)
			}
			if !reflect.DeepEqual(given, before) {
				t.Error("the Service is changed")
			}
		})
	}
}

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

// What Kubernetes does itself is Vicinity's if its administrator says so.
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

// The manifest is one that users of Gardener have: the annotation for clusters that
// know no better, and the label.
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

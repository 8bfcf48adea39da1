package compile

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// knownText shows the known endpoints that get no new connections.
func knownText(t *testing.T, r Result) string {
	t.Helper()
	if len(r.Families) != 1 || len(r.Families[0].Ports) != 1 {
		t.Fatalf("not one port: %v", lines(r))
	}
	k := r.Families[0].Ports[0].Known
	text := "serving " + poolText(k.Serving, nil) + "; silent " + poolText(k.Silent, nil) + "; fleeting " + poolText(k.Fleeting, nil) + "; view " + k.View
	if len(k.Drained) > 0 {
		text += "; drained " + poolText(k.Drained, nil)
	}
	return text
}

// Known decides which connections may continue: those to any serving endpoint.
func TestKnown(t *testing.T) {
	node, withoutZone := testNodeA(), testNodeA()
	withoutZone.Zone = ""
	inside := testService(ours, insideLocal)
	drainedGroup := groupOf("d", "", func(g *v1alpha1.EndpointGroup) { g.Spec.Drained = []string{"10.1.0.2", "10.1.0.3", "web"} })
	for _, test := range []struct {
		name   string
		node   Node
		in     Input
		all    bool
		expect string
	}{
		{
			name: "the zone's own", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@a2 -> a not c")}},
			expect: "serving ; silent ; fleeting ; view a",
		},
		{
			name: "of another zone", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@b2 -> a b not c")}},
			expect: "serving ; silent ; fleeting 2; view a",
		},
		{
			name: "given to another zone", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a not c"), groupOf("h", "2@a2 3@b1 -> b local")}},
			expect: "serving 2 3; silent ; fleeting 3; view a",
		},
		{
			name: "which go", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a not c"), groupOf("h", "2@a2- 3@b1- -> a b")}},
			expect: "serving 2 3; silent ; fleeting ; view a",
		},
		{
			name: "which do not serve", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a not c"), groupOf("h", "2@a2~ 3@b1~ -> a b")}},
			expect: "serving ; silent 2 3; fleeting ; view a",
		},
		{
			name: "one address of two pods", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1~ -> a not c"), groupOf("h", "1@b1 -> b local")}},
			expect: "serving ; silent ; fleeting ; view a",
		},
		{
			name: "by policy", node: node,
			in:     Input{Service: inside, Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@a2 3@b1 -> a b not c")}},
			expect: "serving 2 3; silent ; fleeting 3; view a",
		},
		{
			name: "by tiers", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@a2 3@b1 -> a b tiers kubernetes.io/hostname not c")}},
			expect: "serving 2 3; silent ; fleeting 3; view a",
		},
		{
			name: "while kube-proxy serves it too", node: node,
			in:     Input{Service: testService(), Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@a2- 3@a1~ -> a")}},
			expect: "serving 2; silent 3; fleeting 1 2; view some groups",
		},
		{
			name: "delivered to all zones", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@b2 -> a b")}},
			expect: "serving ; silent ; fleeting ; view ",
		},
		{
			name: "on a node without a zone", node: withoutZone,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@b2 -> a b not c")}},
			expect: "serving ; silent ; fleeting ; view ",
		},
		{
			name: "by slices", node: node, all: true,
			in:     Input{Slices: []*discoveryv1.EndpointSlice{sliceOf("s", "1@a1 2@b2-")}},
			expect: "serving 2; silent ; fleeting ; view ",
		},
		{
			name: "whose connections end", node: node,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a not c"), groupOf("h", "2@a2 -> local"), drainedGroup}},
			expect: "serving 2; silent ; fleeting ; view a; drained 2 3",
		},
		{
			name: "whose connections end, beside slices", node: node, all: true,
			in:     Input{Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 -> a not c"), drainedGroup}, Slices: []*discoveryv1.EndpointSlice{sliceOf("s", "1@a1 2@b1")}},
			expect: "serving 1 2; silent ; fleeting ; view ; drained 2 3",
		},
		{
			name: "by slices beside groups", node: node, all: true,
			in: Input{
				Groups: []*v1alpha1.EndpointGroup{groupOf("g", "1@a1 2@b1 -> a b")},
				Slices: []*discoveryv1.EndpointSlice{sliceOf("s", "1@a1 3@b2")},
			},
			expect: "serving 1 3; silent ; fleeting ; view ",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.in.Service == nil {
				test.in.Service = testService(ours)
			}
			r := Service(test.in, Options{Node: test.node, AllServices: test.all})
			if got := knownText(t, r); got != test.expect {
				t.Errorf("known are %s; want %s", got, test.expect)
			}
		})
	}
}

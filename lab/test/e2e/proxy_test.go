package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
)

// proxyArea is the data plane of the nodes, vicinity-proxy, beside kube-proxy.
func proxyArea() area {
	return area{
		name:  "proxy",
		setup: zones,
		promises: []promise{
			{name: "probe", keep: proxyProbed, within: 4 * time.Minute},
			{name: "conformance", keep: conformance, within: 10 * time.Minute, tier: inTest},
			{name: "accounting", keep: proxyAccounting, within: 3 * time.Minute, beside: true, tier: inTest},
			{name: "affinity-timeout", keep: affinityTimeout, within: 3 * time.Minute, beside: true},
			{name: "nodes-within-the-bound", keep: nodesWithinTheBound(byGroups), within: 4 * time.Minute, beside: true},
			{name: "keys", keep: proxyKeys, within: 4 * time.Minute, beside: true},
			{name: "hard-keys", keep: proxyHardKeys, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "racks", keep: proxyRacks, within: 4 * time.Minute, beside: true},
			{name: "require", keep: proxyRequire, within: 4 * time.Minute, beside: true},
			{name: "local-shared", keep: planKept("local-shared"), within: 4 * time.Minute},
			{name: "local-weighted", keep: planKept("local-weighted"), within: 4 * time.Minute},
			{name: "flow", keep: planKept("flow"), within: 4 * time.Minute, tier: inTest},
			{name: "switches", keep: proxySwitches, within: 5 * time.Minute},
			{name: "hand-over-under-load", keep: handOverUnderLoad, within: 5 * time.Minute, tier: inTest},
			{name: "rolling-update", keep: proxyRollingUpdate, within: 5 * time.Minute},
			{name: "killed", keep: proxyKilled, within: 4 * time.Minute, tier: inTest},
			{name: "zone-changed", keep: zoneChanged, within: 4 * time.Minute},
			{name: "api-server-away", keep: apiServerAway, within: 7 * time.Minute},
			{name: "foreign-flush", keep: foreignFlush, within: 4 * time.Minute},
			{name: "subsetting", keep: subsetting, within: 4 * time.Minute},
			{name: "bad-input", keep: proxyBadInput, within: 5 * time.Minute},
			{name: "tenants-take-nothing", keep: tenantsTakeNothing, within: 5 * time.Minute, tier: inTest},
			{name: "too-large", keep: tooLarge, alone: true, tier: inSoak},
			{name: "own-lease", keep: proxyOwnLease, within: 3 * time.Minute},
			{name: "without-kube-proxy", keep: withoutKubeProxy, within: 12 * time.Minute, alone: true},
			{name: "documentation", keep: documentation("docs/proxy.md"), within: 8 * time.Minute, alone: true},
		},
	}
}

// quickValues are values of the chart by which promises wait less that are not about them: how long zones and
// kube-proxy have to follow, how many proxies the DaemonSet replaces at a time, and how often connections are counted.
var quickValues = []string{"routing.shrinkGrace=3s", "routing.groups.handBackGrace=3s", "proxy.maxUnavailable=50%", "proxy.accounting.interval=2s"}

// rackLabel is the label of racks, some of which reach over zones.
const rackLabel = "example.com/rack"

// racks are those of the nodes. The last node is in none.
var racks = map[string]string{
	"zone-a-1": "r1", "zone-a-2": "r2", "zone-b-1": "r1", "zone-b-2": "r2", "zone-c-1": "r3",
}

// What Services say about who serves them.
const (
	byVicinity  = `{"metadata":{"annotations":{"vicinity.dev/proxy":"true"}}}`
	byKubeProxy = `{"metadata":{"annotations":{"vicinity.dev/proxy":null}}}`
)

// annotated is a patch of a Service's annotations. An empty value takes one away.
func annotated(pairs ...string) string {
	text := ""
	for i := 0; i < len(pairs); i += 2 {
		value := "null"
		if pairs[i+1] != "" {
			value = fmt.Sprintf("%q", pairs[i+1])
		}
		if text != "" {
			text += ","
		}
		text += fmt.Sprintf("%q:%s", pairs[i], value)
	}
	return `{"metadata":{"annotations":{` + text + `}}}`
}

const (
	keysAnnotation = "vicinity.dev/topology-keys"
	zoneAnnotation = "endpointslice.kubernetes.io/same-zone"
	nodeAnnotation = "endpointslice.kubernetes.io/same-node"
	hostnameKey    = corev1.LabelHostname
	zoneKey        = corev1.LabelTopologyZone
)

// servedBy waits until a Service is vicinity-proxy's alone, or kube-proxy's alone and
// without groups.
func (s *scene) servedBy(ctx context.Context, service string, vicinity bool) error {
	what := "Service " + service + " to be served by kube-proxy"
	if vicinity {
		what = "Service " + service + " to be served by vicinity-proxy"
	}
	return kube.Wait(ctx, what, func(ctx context.Context) (string, error) {
		object, err := s.CoreV1().Services(s.namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if got := object.Labels["service.kubernetes.io/service-proxy-name"]; (got == "vicinity") != vicinity {
			return whyNotServed(object), nil
		}
		slices, err := s.DiscoveryV1().EndpointSlices(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return "", err
		}
		managed := 0
		for i := range slices.Items {
			slice := &slices.Items[i]
			if slice.Labels[discoveryv1.LabelManagedBy] != "endpointslice-controller.k8s.io" {
				continue
			}
			managed++
			if got := slice.Labels["service.kubernetes.io/service-proxy-name"]; (got == "vicinity") != vicinity {
				return fmt.Sprintf("EndpointSlice %s has the proxy name %q", slice.Name, got), nil
			}
		}
		if object.Spec.Selector != nil && managed == 0 {
			return "it has no EndpointSlices", nil
		}
		groups, err := s.groupsOf(ctx, service)
		if err != nil {
			return "", err
		}
		if !vicinity && len(groups) > 0 {
			return fmt.Sprintf("it still has %d groups", len(groups)), nil
		}
		return "", nil
	})
}

// whyNotServed is what the condition of a Service says, or that it has none.
func whyNotServed(service *corev1.Service) string {
	for _, condition := range service.Status.Conditions {
		if condition.Type == "vicinity.dev/TopologyRouting" {
			return "its condition is " + string(condition.Status) + ", " + condition.Message
		}
	}
	return fmt.Sprintf("its labels are %v, and it has no condition", service.Labels)
}

// deployed runs an echo Service of so many endpoints that serve on for long when they are to end, and clients on all nodes, has the
// Service say what a patch says, and waits until vicinity-proxy serves it.
func (s *scene) deployed(ctx context.Context, endpoints int, patch string) error {
	if err := s.serve(ctx, patientEcho(lab.EchoManifests("echo", endpoints)), endpoints); err != nil {
		return err
	}
	return s.handOverEcho(ctx, patch)
}

// Endpoints of patientEcho serve on for patientDrain after they are asked to end, and then until no request has come for
// quietDrain. That is how long a request may take, so a machine that is slow for less cannot make an endpoint end while nodes
// still send to it.
const patientDrain, quietDrain = 6 * time.Second, 10 * time.Second

// patientEcho has the pods of manifests of echo Services serve on for patientDrain, and until they are quiet.
func patientEcho(manifests string) string {
	return strings.NewReplacer(
		"terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 120",
		"        env:\n", fmt.Sprintf("        env:\n        - {name: ECHO_DRAIN, value: %s}\n        - {name: ECHO_DRAIN_QUIET, value: %s}\n", patientDrain, quietDrain),
	).Replace(manifests)
}

// handOverEcho has the echo Service served by vicinity-proxy and say what a patch says.
func (s *scene) handOverEcho(ctx context.Context, patch string) error {
	for _, p := range []string{byVicinity, patch} {
		if p == "" {
			continue
		}
		if err := s.PatchService(ctx, s.namespace, "echo", p); err != nil {
			return err
		}
	}
	return s.servedBy(ctx, "echo", true)
}

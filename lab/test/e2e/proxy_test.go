package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// proxyArea covers the data plane of the nodes: vicinity-proxy, beside kube-proxy.
func proxyArea() area {
	return area{
		name:  "proxy",
		setup: zones,
		promises: []promise{
			{name: "probe", keep: proxyProbed, within: 4 * time.Minute},
			{name: "conformance", keep: conformance, within: 10 * time.Minute, tier: inTest},
			{name: "accounting", keep: proxyAccounting, within: 3 * time.Minute, beside: true, tier: inTest},
			{name: "nodes-within-the-bound", keep: nodesWithinTheBound(byGroups), within: 4 * time.Minute, beside: true},
			{name: "keys", keep: proxyKeys, within: 4 * time.Minute, beside: true},
			{name: "hard-keys", keep: proxyHardKeys, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "endpoints-by-hand", keep: endpointsByHand, within: 4 * time.Minute, beside: true},
			{name: "racks", keep: proxyRacks, within: 4 * time.Minute, beside: true},
			{name: "require", keep: proxyRequire, within: 4 * time.Minute, beside: true},
			{name: "behind-load-balancers", keep: behindLoadBalancers, within: 5 * time.Minute, beside: true},
			{name: "local-shared", keep: planKept("local-shared"), within: 4 * time.Minute},
			{name: "local-weighted", keep: planKept("local-weighted"), within: 4 * time.Minute},
			{name: "flow", keep: planKept("flow"), within: 4 * time.Minute, tier: inTest},
			{name: "switches", keep: proxySwitches, within: 5 * time.Minute},
			{name: "hand-over-under-load", keep: handOverUnderLoad, within: 5 * time.Minute, tier: inTest},
			{name: "rolling-update", keep: proxyRollingUpdate, within: 5 * time.Minute},
			{name: "killed", keep: proxyKilled, within: 4 * time.Minute, tier: inTest},
			{name: "zone-changed", keep: zoneChanged, within: 4 * time.Minute},
			{name: "joining-nodes", keep: joiningNodes, within: 5 * time.Minute},
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

// quickValues shorten waits that are not under test: the grace periods for zones and for
// kube-proxy, the rollout of the DaemonSet, and the interval of counting connections.
var quickValues = []string{"routing.shrinkGrace=3s", "routing.groups.handBackGrace=3s", "proxy.maxUnavailable=50%", "proxy.accounting.interval=2s"}

// rackLabel is the label of racks. Some racks span zones.
const rackLabel = "example.com/rack"

// racks has the racks of the nodes. The last node has none.
var racks = map[string]string{
	"zone-a-1": "r1", "zone-a-2": "r2", "zone-b-1": "r1", "zone-b-2": "r2", "zone-c-1": "r3",
}

// Annotations that choose the proxy of a Service.
const (
	byVicinity  = `{"metadata":{"annotations":{"vicinity.dev/proxy":"true"}}}`
	byKubeProxy = `{"metadata":{"annotations":{"vicinity.dev/proxy":null}}}`
)

// annotated returns a patch of a Service's annotations. An empty value removes one.
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

// waitServedBy waits until only vicinity-proxy serves a Service, or only kube-proxy, without groups.
func (s *scene) waitServedBy(ctx context.Context, service string, vicinity bool) error {
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

// whyNotServed returns the message of a Service's condition, or reports that it has none.
func whyNotServed(service *corev1.Service) string {
	for _, condition := range service.Status.Conditions {
		if condition.Type == "vicinity.dev/TopologyRouting" {
			return "its condition is " + string(condition.Status) + ", " + condition.Message
		}
	}
	return fmt.Sprintf("its labels are %v, and it has no condition", service.Labels)
}

// deployed runs an echo Service whose endpoints serve on for long while they terminate, and clients
// on all nodes. It patches the Service and waits until vicinity-proxy serves it.
func (s *scene) deployed(ctx context.Context, endpoints int, patch string) error {
	if err := s.serve(ctx, patientEcho(lab.EchoManifests("echo", endpoints)), endpoints); err != nil {
		return err
	}
	return s.handOverEcho(ctx, patch)
}

// Endpoints of patientEcho, once terminating, serve on for patientDrain, and until they had no
// request for quietDrain. That is the timeout of a request: on a slow machine an endpoint does not
// end while nodes still send to it.
const patientDrain, quietDrain = 6 * time.Second, 10 * time.Second

// patientEcho makes the echo pods of manifests serve on for patientDrain, and until they are quiet.
func patientEcho(manifests string) string {
	return strings.NewReplacer(
		"terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 120",
		"        env:\n", fmt.Sprintf("        env:\n        - {name: ECHO_DRAIN, value: %s}\n        - {name: ECHO_DRAIN_QUIET, value: %s}\n", patientDrain, quietDrain),
	).Replace(manifests)
}

// handOverEcho patches the echo Service and hands it over to vicinity-proxy.
func (s *scene) handOverEcho(ctx context.Context, patch string) error {
	for _, p := range []string{byVicinity, patch} {
		if p == "" {
			continue
		}
		if err := s.PatchService(ctx, s.namespace, "echo", p); err != nil {
			return err
		}
	}
	return s.waitServedBy(ctx, "echo", true)
}

// nft runs the program nft in the network of a node.
func (s *scene) nft(ctx context.Context, node shape.Node, args ...string) (string, error) {
	var output []byte
	err := fabric.InNamespace(shape.NodeNamespace(s.cluster.Shape().Name, node.Index), func() (err error) {
		cmd := exec.CommandContext(ctx, "nft", args...)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		if output, err = cmd.Output(); err != nil {
			return fmt.Errorf("nft %s on %s: %w: %s", strings.Join(args, " "), node.Name, err, &complaint)
		}
		return nil
	})
	return string(output), err
}

// waitOnlyIn waits until, on every node, the tables of one proxy contain the cluster IP of a Service
// and those of the other do not.
func (s *scene) waitOnlyIn(ctx context.Context, service, table string) error {
	object, err := s.CoreV1().Services(s.namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes := s.cluster.Shape().Nodes()
	return kube.Wait(ctx, fmt.Sprintf("Service %s to be only in the rules of %s", service, table), func(ctx context.Context) (string, error) {
		for _, node := range nodes {
			for _, address := range object.Spec.ClusterIPs {
				family := "ip"
				if strings.Contains(address, ":") {
					family = "ip6"
				}
				for _, candidate := range []string{"kube-proxy", "vicinity"} {
					text, err := s.nft(ctx, node, "list", "table", family, candidate)
					if err != nil {
						return "", err
					}
					if has := slices.Contains(strings.FieldsFunc(text, notOfAddress), address); has != (candidate == table) {
						return fmt.Sprintf("%s of the rules of %s on %s has %s: %t", family, candidate, node.Name, address, has), nil
					}
				}
			}
		}
		return "", nil
	})
}

// notOfAddress reports whether a character cannot be part of an IP address.
func notOfAddress(r rune) bool {
	return r != '.' && r != ':' && (r < '0' || r > '9') && (r < 'a' || r > 'f')
}

// groupsOf returns the groups of a Service.
func (s *scene) groupsOf(ctx context.Context, service string) ([]v1alpha1.EndpointGroup, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(v1alpha1.GroupVersion.WithResource("endpointgroups")).Namespace(s.namespace).
		List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelService + "=" + service})
	if err != nil {
		return nil, err
	}
	groups := make([]v1alpha1.EndpointGroup, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &groups[i]); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// vicinity-proxy serves health beside kube-proxy on this port, and metrics on these: beside kube-proxy, and in its place.
const (
	proxyHealthPort      = 10266
	proxyMetricsPort     = 10267
	kubeProxyMetricsPort = 10249
)

// series has the values of metrics, by name and labels in their text form.
type series map[string]float64

// proxyMetrics returns the metrics of the vicinity-proxy of a node.
func (s *scene) proxyMetrics(ctx context.Context, node shape.Node) (series, error) {
	namespace := shape.NodeNamespace(s.cluster.Shape().Name, node.Index)
	port := proxyMetricsPort
	if !s.cluster.Shape().Proxy.KubeProxy() {
		port = kubeProxyMetricsPort
	}
	response, body, err := fetch(ctx, namespace, "127.0.0.1:"+strconv.Itoa(port), "/metrics")
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of the proxy of %s: %w", node.Name, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics of the proxy of %s: it answered %s", node.Name, response.Status)
	}
	all := series{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading the metric %q: %w", line, err)
		}
		all[line[:at]] = value
	}
	return all, lines.Err()
}

// sum adds up the series of a metric that have all the given labels, written name="value".
func (all series) sum(metric string, labels ...string) float64 {
	total := 0.0
	for name, value := range all {
		base, given, _ := strings.Cut(name, "{")
		if base != metric {
			continue
		}
		has := true
		for _, label := range labels {
			has = has && (strings.HasPrefix(given, label) || strings.Contains(given, ","+label))
		}
		if has {
			total += value
		}
	}
	return total
}

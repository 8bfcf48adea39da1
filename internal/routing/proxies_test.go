package routing

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// The condition does not claim more than proxies do, as far as the nodes tell which they
// are: kube-proxy goes by hints without an annotation since 1.31, by hints for nodes since
// 1.34, and on Windows by none.
func TestHintsThatProxiesIgnore(t *testing.T) {
	const zone, both = "kubernetes.io/hostname,*", "kubernetes.io/hostname,topology.kubernetes.io/zone,*"
	prefer := []string{v1alpha1.AnnotationSameZone, v1alpha1.Prefer}
	auto := []string{v1alpha1.AnnotationTopologyMode, "Auto"}
	for name, test := range map[string]struct {
		annotations []string
		versions    string // of the nodes of zones a, b and c; "w" for Windows
		reason      string
		says        string // "" for nothing
		ignored     Ignored
		by          string
	}{
		"all can":                     {prefer, "v1.31.0 v1.34.2 v1.37.0", "Allocated", "", IgnoredNone, ""},
		"nothing is known":            {prefer, "- next v1.31.0", "Allocated", "", IgnoredNone, ""},
		"all are old":                 {prefer, "v1.30.14 v1.29.0-eks-1 v1.30.2-gke.7", "Allocated,ProxiesIgnoreHints", "all nodes run a Kubernetes older than 1.31", IgnoredAll, "a-1 b-1 c-1"},
		"some are old":                {prefer, "v1.31.0 v1.30.14 v1.30.14", "Allocated", "some nodes run a Kubernetes older than 1.31", IgnoredNone, "b-1 c-1"},
		"old ones obey an annotation": {auto, "v1.30.14 v1.30.14 v1.30.14", "Allocated", "", IgnoredNone, ""},
		"a disabled annotation":       {append(slices.Clone(prefer), v1alpha1.AnnotationTopologyMode, "Disabled"), "v1.30.14 v1.30.14 v1.30.14", "Allocated,ProxiesIgnoreHints", "all nodes run", IgnoredAll, "a-1 b-1 c-1"},
		"Windows":                     {prefer, "w v1.37.0 v1.37.0", "Allocated", "some nodes run Windows", IgnoredNone, "a-1"},
		"old ones and Windows":        {prefer, "w v1.30.0 v1.30.0", "Allocated,ProxiesIgnoreHints", "some nodes run Windows", IgnoredAll, "a-1 b-1 c-1"},
		"hints for nodes, all can":    {[]string{v1alpha1.AnnotationTopologyKeys, both}, "v1.34.0 v1.35.0 v1.36.0", "Allocated", "", IgnoredNone, ""},
		"hints for nodes, none can":   {[]string{v1alpha1.AnnotationTopologyKeys, both}, "v1.32.0 v1.33.0 v1.33.0", "Allocated,ProxiesIgnoreHints", "all nodes run a Kubernetes older than 1.34", IgnoredNodes, "a-1 b-1 c-1"},
		"hints for nodes, some can":   {[]string{v1alpha1.AnnotationTopologyKeys, both}, "v1.33.0 v1.34.0 v1.34.0", "Allocated", "some nodes run a Kubernetes older than 1.34", IgnoredNone, "a-1"},
		"hints for nodes alone":       {[]string{v1alpha1.AnnotationTopologyKeys, zone}, "v1.33.0 v1.33.0 v1.33.0", "Allocated,ProxiesIgnoreHints", "all nodes run a Kubernetes older than 1.34", IgnoredAll, "a-1 b-1 c-1"},
		"no plan":                     {[]string{v1alpha1.AnnotationSameZone, v1alpha1.Balanced, v1alpha1.AnnotationTopologyMode, "Auto"}, "v1.30.0 v1.30.0 v1.30.0", "Waiting", "", IgnoredNone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []*corev1.Node
			for i, version := range strings.Fields(test.versions) {
				zone := string(rune('a' + i))
				node := testNode{name: zone + "-1", zone: zone}.object()
				if node.Status.NodeInfo.KubeletVersion = version; version == "w" {
					node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.37.0", OperatingSystem: "windows"}
				}
				nodes = append(nodes, node)
			}
			in := inputOf(routedService(test.annotations...), nodes, slicesOf("a a a a b b b b c c c c"))
			in.Settings.TakeOverAuto = true
			d := decided(t, in)
			condition := d.Condition()
			status := metav1.ConditionFalse
			if test.reason == "Allocated" {
				status = metav1.ConditionTrue
			}
			if condition.Reason != test.reason || condition.Status != status || d.Ignored != test.ignored || strings.Join(d.IgnoredBy, " ") != test.by {
				t.Errorf("%s %s, ignored %q by %v", condition.Status, condition.Reason, d.Ignored, d.IgnoredBy)
			}
			if !strings.Contains(condition.Message, test.says) || (test.says == "") != (len(d.Notes) == 0) {
				t.Errorf("message %q", condition.Message)
			}
			in.Service.Status.Conditions = []metav1.Condition{condition}
			if strings.HasPrefix(test.reason, "Allocated") && reasonOf(in.Service).State(corev1.IPv4Protocol) != allocate.Allocated {
				t.Error("the state is not read back")
			}
		})
	}
}

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/names/location"
	"vicinity.dev/vicinity/internal/routing/consumer"
)

// labelVersion and labelChart are the labels of the chart with its versions.
const (
	labelVersion = "app.kubernetes.io/version"
	labelChart   = "helm.sh/chart"
)

// Cluster is a summary of the cluster.
type Cluster struct {
	Kubernetes string   `json:"kubernetes"`
	Nodes      int      `json:"nodes"`
	Zones      []string `json:"zones"`
	Services   int      `json:"services"`
	// Parts are those of Vicinity, and Proxies other programs that serve Services.
	Parts   []Part `json:"parts"`
	Proxies []Part `json:"proxies"`
}

// Part is a program that runs in the cluster.
type Part struct {
	Name    string `json:"name"`
	Object  Object `json:"object"`
	Version string `json:"version,omitempty"`
	Mode    string `json:"mode,omitempty"`
	// Ready and Wanted are pods.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
}

func (e *examination) cluster() Cluster {
	zones, _ := nodeZones(e.Nodes)
	c := Cluster{
		Kubernetes: e.Version, Nodes: len(e.Nodes), Zones: slices.Sorted(maps.Keys(zones)), Services: len(e.Services), Parts: e.parts(), Proxies: []Part{},
	}
	if c.Zones == nil {
		c.Zones = []string{}
	}
	for _, set := range e.Networks.DaemonSets {
		name, mode := "", ""
		switch {
		case consumer.IsKubeProxy(set):
			name = "kube-proxy"
			if e.Networks.KubeProxy != nil {
				mode = e.Networks.KubeProxy.Mode
			}
		case consumer.CanReplaceKubeProxy(set):
			name = set.Name
		default:
			continue
		}
		c.Proxies = append(c.Proxies, Part{
			Name: name, Object: objectOf("DaemonSet", set), Version: consumer.Version(set), Mode: mode,
			Ready: int(set.Status.NumberReady), Wanted: int(set.Status.DesiredNumberScheduled),
		})
	}
	return c
}

func (e *examination) parts() []Part {
	parts := []Part{}
	for i := range e.Controllers {
		parts = append(parts, deploymentPart("vicinity-controller", e.Controllers[i].Deployment))
	}
	for _, set := range e.Proxies {
		parts = append(parts, Part{
			Name: "vicinity-proxy", Object: objectOf("DaemonSet", set), Version: set.Labels[labelVersion],
			Ready: int(set.Status.NumberReady), Wanted: int(set.Status.DesiredNumberScheduled),
		})
	}
	for _, d := range e.NameServers {
		parts = append(parts, deploymentPart("vicinity-dns", d))
	}
	return parts
}

func deploymentPart(name string, d *appsv1.Deployment) Part {
	return Part{Name: name, Object: objectOf("Deployment", d), Version: d.Labels[labelVersion], Ready: int(d.Status.ReadyReplicas), Wanted: int(replicasOf(d.Spec.Replicas))}
}

func replicasOf(replicas *int32) int32 { return *cmp.Or(replicas, new(int32(1))) }

// pods returns the command that shows the pods of a part of Vicinity.
func pods(object Object, component string) string {
	return "kubectl" + object.at() + " get pods -o wide -l app.kubernetes.io/part-of=vicinity,app.kubernetes.io/component=" + component
}

// checkInstallation checks the parts of Vicinity and whether they fit together.
func (e *examination) checkInstallation() {
	for i := range e.Controllers {
		object := objectOf("Deployment", e.Controllers[i])
		if i > 0 && replicasOf(e.Controllers[i].Spec.Replicas) == 0 {
			continue // it is switched off
		}
		e.checkController(e.Controllers[i].Deployment)
		if i == 0 {
			continue
		}
		e.add(controllersMany, object, fmt.Sprintf("Besides %s there is %s.", objectOf("Deployment", e.Controllers[0]), object), "helm list -A")
	}
	for _, d := range e.NameServers {
		if object := objectOf("Deployment", d); d.Status.ReadyReplicas == 0 && replicasOf(d.Spec.Replicas) > 0 {
			e.add(nameServerNotReady, object, fmt.Sprintf("%s has no ready pod.", object), "kubectl"+object.at()+" describe deployment "+object.Name)
		}
	}
	for _, set := range e.Proxies {
		object := objectOf("DaemonSet", set)
		if n := set.Status.NumberUnavailable; n > 0 {
			e.add(proxyNotReady, object, fmt.Sprintf("%s is not available on %s of %d.", object, plaintext.Plural(int(n), "node"), set.Status.DesiredNumberScheduled), pods(object, "proxy"))
		}
	}
	e.checkVersions()
}

// checkClients checks that vicinity-dns locates the pods.
func (e *examination) checkClients() {
	if len(e.NameServers) == 0 || !e.knows(SourceNodes, SourceClients) {
		return
	}
	if lost := location.Unlocated(location.IndexOf(e.Nodes, e.Locators), e.Pods, e.now().Add(-time.Minute)); len(lost) > 0 {
		e.add(clientsNotLocated, clusterObject, fmt.Sprintf("vicinity-dns does not find %s on their nodes (%s).", plaintext.Plural(len(lost), "pod"), firstOf(lost)),
			e.upgrade()+" --set locators.enabled=true")
	}
}

func (e *examination) checkController(d *appsv1.Deployment) {
	object, wanted := objectOf("Deployment", d), replicasOf(d.Spec.Replicas)
	switch ready := d.Status.ReadyReplicas; {
	case ready == 0:
		e.add(controllerNotReady, object, fmt.Sprintf("%s has no ready pod, and should have %d.", object, wanted), pods(object, "controller"))
	case ready < wanted:
		e.add(controllerShort, object, fmt.Sprintf("%s has %s, and should have %d.", object, plaintext.Plural(int(ready), "ready pod"), wanted), pods(object, "controller"))
	}
}

func (e *examination) checkVersions() {
	if !e.isInstalled() {
		return
	}
	controller := e.Controllers[0].Deployment
	own := controller.Labels[labelVersion]
	for _, part := range e.parts()[1:] {
		if part.Version != "" && own != "" && part.Version != own && part.Object != objectOf("Deployment", controller) {
			e.add(versionsDiffer, part.Object, fmt.Sprintf("%s has version %s, and %s has %s.", part.Object, part.Version, objectOf("Deployment", controller), own),
				"helm list -n "+part.Object.Namespace)
		}
	}
	if e.isOtherVersion() {
		e.add(programVersionDiffer, objectOf("Deployment", controller),
			fmt.Sprintf("%s is from chart %s, and this program is from chart %s.", objectOf("Deployment", controller), e.controllerChart(), e.Charts[0]), "vicinity version")
	}
}

// isOtherVersion reports whether a chart of another version than this program's installed the controller. A program that is no
// release fits the development versions of its chart, too.
func (e *examination) isOtherVersion() bool {
	chart := e.controllerChart()
	isDevelopment := len(e.Charts) == 1 && strings.HasPrefix(chart, e.Charts[0]+"-dev.")
	return chart != "" && len(e.Charts) > 0 && !slices.Contains(e.Charts, chart) && !isDevelopment
}

// controllerChart returns the version of the chart that installed the controller, empty if it is unknown.
func (e *examination) controllerChart() string {
	if !e.isInstalled() {
		return ""
	}
	_, chart, _ := strings.Cut(e.Controllers[0].Labels[labelChart], "-")
	return chart
}

type template struct {
	object   Object
	labels   map[string]string
	replicas int32
}

func (e *examination) templates() map[string][]template {
	all := map[string][]template{}
	add := func(kind string, object metav1.Object, pod *corev1.PodTemplateSpec, replicas *int32) {
		all[object.GetNamespace()] = append(all[object.GetNamespace()], template{objectOf(kind, object), pod.Labels, replicasOf(replicas)})
	}
	for _, d := range e.Deployments {
		add("Deployment", d, &d.Spec.Template, d.Spec.Replicas)
	}
	for _, s := range e.StatefulSets {
		add("StatefulSet", s, &s.Spec.Template, s.Spec.Replicas)
	}
	return all
}

package agent

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podField returns a field of the pod, by its path in the downward API.
func podField(pod *corev1.Pod, r *record, path string) (string, error) {
	if name, key, ok := splitSubscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return mapText(pod.Labels), nil
	case "metadata.annotations":
		return mapText(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return addressText(r.Hosts[:min(1, len(r.Hosts))]), nil
	case "status.hostIPs":
		return addressText(r.Hosts), nil
	case "status.podIP":
		addrs := podAddresses(pod, r)
		return addressText(addrs[:min(1, len(addrs))]), nil
	case "status.podIPs":
		return addressText(podAddresses(pod, r)), nil
	}
	return "", fmt.Errorf("fieldRef %q: the downward API has no such field", path)
}

func splitSubscript(path string) (name, key string, ok bool) {
	name, rest, found := strings.Cut(path, "['")
	key, closed := strings.CutSuffix(rest, "']")
	return name, key, found && closed
}

func mapText(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

func addressText(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return strings.Join(texts, ",")
}

// resourceField returns a resource of a container. A container without a limit is limited
// by what the node can allocate.
func resourceField(spec *corev1.Container, allocatable corev1.ResourceList, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = spec.Resources.Limits
	case "requests":
		list = spec.Resources.Requests
	default:
		return "", fmt.Errorf("resourceFieldRef %q: write limits.NAME or requests.NAME", ref.Resource)
	}
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok && kind == "limits" {
		quantity = allocatable[corev1.ResourceName(name)]
	}
	return divideUp(quantity, ref.Divisor, name == string(corev1.ResourceCPU)), nil
}

// divideUp rounds up, as the downward API does.
func divideUp(quantity, divisor resource.Quantity, milli bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if milli {
		return strconv.FormatInt(int64(math.Ceil(float64(quantity.MilliValue())/float64(divisor.MilliValue()))), 10)
	}
	return strconv.FormatInt(int64(math.Ceil(float64(quantity.Value())/float64(divisor.Value()))), 10)
}

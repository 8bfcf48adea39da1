package agent

import (
	"fmt"
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/shape"
)

// nodeObject is a node with its status: without a status, the node would be tainted until a second
// write.
func nodeObject(s shape.Shape, n shape.Node, version string, now time.Time) (*corev1.Node, error) {
	labels := map[string]string{
		corev1.LabelHostname:       n.Name,
		corev1.LabelTopologyZone:   n.Zone,
		corev1.LabelTopologyRegion: n.Region,
		corev1.LabelOSStable:       "linux",
		corev1.LabelArchStable:     runtime.GOARCH,
	}
	maps.Copy(labels, n.Labels)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels}}
	for _, cidr := range s.NodePodCIDRs(n) {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, cidr.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	resources, err := nodeResources(n)
	if err != nil {
		return nil, err
	}
	node.Status = corev1.NodeStatus{
		Capacity:    resources,
		Allocatable: resources,
		Conditions:  nodeConditions(now),
		// No address: requests for logs or streams fail at once.
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}},
		NodeInfo: corev1.NodeSystemInfo{
			OperatingSystem:         "linux",
			Architecture:            runtime.GOARCH,
			KubeletVersion:          version,
			ContainerRuntimeVersion: "vicinity://lab",
			OSImage:                 "Vicinity lab",
		},
	}
	return node, nil
}

func nodeResources(n shape.Node) (corev1.ResourceList, error) {
	list := corev1.ResourceList{
		corev1.ResourcePods:             *resource.NewQuantity(shape.PodsPerNode, resource.DecimalSI),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: n.CPU, corev1.ResourceMemory: n.Memory} {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("node %q: %s %q: write a quantity, such as 4 or 8Gi", n.Name, name, text)
		}
		list[name] = quantity
	}
	return list, nil
}

func nodeConditions(now time.Time) []corev1.NodeCondition {
	at := apiTime(now)
	healthy := func(t corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: t, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: at, LastTransitionTime: at,
		}
	}
	return []corev1.NodeCondition{
		healthy(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		healthy(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		healthy(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		healthy(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

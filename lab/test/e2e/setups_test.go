package e2e_test

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// ownLabs is for areas whose promises all bring up labs of their own.
var ownLabs = &setup{name: "own labs"}

// zones is a cluster of three zones in two regions, with two nodes each, both proxies, and all
// parts of Vicinity from the packaged chart. The lab installs no DNS server. vicinity-dns runs
// twice: from the chart, and as the cluster's DNS server, which configureNames makes and the
// promises about names query.
var zones = &setup{
	name: "zones",
	shape: func() shape.Shape {
		s := shaped(shape.Options{Name: "zones", Regions: []string{"west", "west", "east"}, DNS: string(shape.DNSNone)})
		s.Proxy = shape.ProxyBoth
		for z := range s.Zones {
			for n := range s.Zones[z].Nodes {
				node := &s.Zones[z].Nodes[n]
				if rack := racks[node.Name]; rack != "" {
					node.Labels = map[string]string{rackLabel: rack}
				}
			}
		}
		return s
	},
	prepare: func(ctx context.Context, c *lab.Cluster) error {
		if err := installZones(ctx, c); err != nil {
			return err
		}
		return configureNames(ctx, c)
	},
}

// installZones installs the packaged chart with all parts, as the promises of this setup need it.
func installZones(ctx context.Context, c *lab.Cluster) error {
	all := []string{"dns.enabled=true", "disruption.enabled=true", "rollouts.enabled=true", "proxy.startupTaint=true"}
	return c.InstallRelease(ctx, packageFolder, slices.Concat(all, locateAll, quickValues)...)
}

// fleet is a cluster of nodes without network, whose pods are ready at once, and a node in each
// zone for the controller. It serves EvictionRequests.
var fleet = &setup{
	name: "fleet",
	shape: func() shape.Shape {
		return shaped(shape.Options{
			Name: "fleet", NodesPerZone: []int{1}, FakeNodes: 9, SingleStack: true, EvictionRequests: true, DNS: string(shape.DNSNone),
		})
	},
	prepare: func(ctx context.Context, c *lab.Cluster) error {
		return c.InstallVicinity(ctx, "disruption.enabled=true", "disruption.evictionRequests=true",
			"rollouts.enabled=true", "rollouts.scaleDown=true", "rollouts.pacing=true", "rollouts.ordinals=true")
	},
}

// shaped returns the shape of constant options.
func shaped(o shape.Options) shape.Shape {
	s, err := shape.FromOptions(o)
	if err != nil {
		panic(err)
	}
	return s
}

const (
	vicinityNamespace = "vicinity-system"
	vicinityObjects   = "app.kubernetes.io/instance=vicinity"
	controllerObjects = vicinityObjects + ",app.kubernetes.io/component=controller"
)

// controllers returns the ready pods of the controller.
func controllers(ctx context.Context, client *lab.Client) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: controllerObjects})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !kube.PodReady(&pod)
	}), nil
}

// names returns the names of pods.
func names(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}

// waitLeader waits until one of the running controllers leads.
func (s *scene) waitLeader(ctx context.Context) error {
	return kube.Wait(ctx, "a controller to lead", func(ctx context.Context) (string, error) {
		leader, err := s.leader(ctx)
		if err != nil || leader != "" {
			return "", err
		}
		return "no lease is held by a pod that runs", nil
	})
}

// leader returns the leading pod of the running controllers, or an empty name.
func (s *scene) leader(ctx context.Context) (string, error) {
	pods, err := controllers(ctx, s.Client)
	if err != nil {
		return "", err
	}
	leases, err := s.CoordinationV1().Leases(vicinityNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range leases.Items {
		holder := leases.Items[i].Spec.HolderIdentity
		for j := range pods {
			if holder != nil && strings.HasPrefix(*holder, pods[j].Name+"_") {
				return pods[j].Name, nil
			}
		}
	}
	return "", nil
}

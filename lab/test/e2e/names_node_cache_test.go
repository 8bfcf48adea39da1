package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
)

// nodeCacheManifests are a cache on the host network of every node, as NodeLocal DNSCache is: no
// plugin of it knows the cluster, it asks the cluster's DNS over TCP, and its settings of the
// cache are those of NodeLocal DNSCache's manifest.
const nodeCacheManifests = `apiVersion: v1
kind: ConfigMap
metadata: {name: node-cache}
data:
  Corefile: |
    cluster.local:53 {
        errors
        ready :8191
        bind {$NODE_ADDRESS}
        cache {
            success 9984 30
            denial 9984 5
        }
        forward . $DNS {
            force_tcp
        }
    }
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-cache}
spec:
  selector: {matchLabels: {app: node-cache}}
  template:
    metadata: {labels: {app: node-cache}}
    spec:
      hostNetwork: true
      dnsPolicy: Default
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      containers:
      - name: cache
        image: vicinity-dns
        args: [-conf, /etc/coredns/Corefile]
        env:
        - name: NODE_ADDRESS
          valueFrom: {fieldRef: {fieldPath: status.hostIP}}
        readinessProbe:
          httpGet: {path: /ready, port: 8191}
          periodSeconds: 1
        volumeMounts: [{name: config, mountPath: /etc/coredns, readOnly: true}]
      volumes: [{name: config, configMap: {name: node-cache}}]
`

// nodeCaches has clients ask the cache of their node. The DNS server sees the node's address, and
// the cache keeps an answer for no longer than the TTL of filtered records says.
func nodeCaches(ctx context.Context, s *scene) (string, error) {
	nodes := s.cluster.Shape().Nodes()
	left := map[string]string{"zone-a-1": "echo-zone-a-1-0", "zone-a-2": "echo-zone-a-2-1", "zone-b-1": "echo-zone-b-1-2"}
	services := headlessOf("soft", keysAnnotation, keysOf["soft"]) + headlessOf("hard-zone", keysAnnotation, keysOf["hard-zone"])
	if err := s.namedPods(ctx, services, "zone-a-1", "zone-a-2", "zone-b-1"); err != nil {
		return "", err
	}
	manifests := strings.Replace(nodeCacheManifests, "$DNS", s.cluster.Shape().DNSAddrs()[0].String(), 1)
	if err := s.Apply(ctx, s.namespace, manifests); err != nil {
		return "", err
	}
	err := kube.Wait(ctx, "caches of nodes to be ready", func(ctx context.Context) (string, error) {
		set, err := s.AppsV1().DaemonSets(s.namespace).Get(ctx, "node-cache", metav1.GetOptions{})
		if err != nil || int(set.Status.NumberReady) == len(nodes) {
			return "", err
		}
		return fmt.Sprintf("%d of %d are", set.Status.NumberReady, len(nodes)), nil
	})
	if err != nil {
		return "", err
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	right := 0
	for _, gone := range []string{"", "zone-a-1"} {
		if gone != "" {
			if err := s.removePod(ctx, left[gone]); err != nil {
				return "", err
			}
			delete(left, gone)
		}
		var all []asked
		for _, node := range nodes {
			server, err := s.nodeCache(ctx, node)
			if err != nil {
				return "", err
			}
			for _, service := range []string{"soft", "hard-zone"} {
				q := dnsquery.Query{Name: s.fqdn(service), Server: server}
				all = append(all, asked{clients[node.Name], q, nearestPods(service, node, nodes, left)})
			}
		}
		n, err := s.answers(ctx, all)
		if err != nil {
			return "", fmt.Errorf("with %d pods: %w", len(left), err)
		}
		right += n
	}
	return fmt.Sprintf("%d answers by the caches of %d nodes are those for the node, also after a pod of it went", right, len(nodes)), nil
}

// nodeCache is where the cache of a node is asked.
func (s *scene) nodeCache(ctx context.Context, node shape.Node) (netip.AddrPort, error) {
	object, err := s.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return netip.AddrPort{}, err
	}
	address, err := netip.ParseAddr(object.Status.Addresses[0].Address)
	return netip.AddrPortFrom(address, dnsquery.Port), err
}

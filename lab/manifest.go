package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EchoManifests are a Deployment of lab/echo, spread over zones and nodes, and a Service of
// the same name for all protocols and families. Additional lines of YAML go into the
// Service's spec.
func EchoManifests(name string, replicas int, spec ...string) string {
	var extra strings.Builder
	for _, line := range spec {
		fmt.Fprintf(&extra, "  %s\n", line)
	}
	return echoService(name, extra.String()) + "---\n" + deployment(name, "echo", replicas, echoContainer(name))
}

// UnevenEchoManifests are an echo Service with a given number of endpoints in each zone, by
// a Deployment for each.
func UnevenEchoManifests(name string, numbers map[string]int) string {
	text := echoService(name, "")
	for _, zone := range slices.Sorted(maps.Keys(numbers)) {
		text += fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s-%[2]s
spec:
  replicas: %[3]d
  selector:
    matchLabels: {app: %[1]s, zone: %[2]s}
  template:
    metadata:
      labels: {app: %[1]s, zone: %[2]s}
    spec:
      terminationGracePeriodSeconds: 5
      nodeSelector: {topology.kubernetes.io/zone: %[2]s}
      containers:
      - name: echo
        image: lab/echo
%[4]s`, name, zone, numbers[zone], echoContainer(name))
	}
	return text
}

func echoService(name, extra string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: %[1]s
spec:
  ipFamilyPolicy: PreferDualStack
  selector:
    app: %[1]s
  ports:
  - {name: http, port: 80, targetPort: http}
  - {name: tcp, port: 81, targetPort: tcp}
  - {name: udp, port: 82, targetPort: udp, protocol: UDP}
%[2]s`, name, extra)
}

// ClientManifests are a Deployment of lab/client, spread over zones and nodes.
func ClientManifests(name string, replicas int) string {
	return deployment(name, "client", replicas, "")
}

// DemoEndpoints is the number of endpoints of the demo in each zone.
const DemoEndpoints = 2

// DemoManifests are the demo's namespace with an echo Service and a client in each zone.
func DemoManifests(namespace string, zones int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n", namespace) +
		EchoManifests("echo", zones*DemoEndpoints) + "---\n" + ClientManifests("client", zones)
}

// deployment spreads pods of an image of the lab. Nodes and zones that are down do not
// block others.
func deployment(name, image string, replicas int, container string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: %[3]d
  selector:
    matchLabels:
      app: %[1]s
  template:
    metadata:
      labels:
        app: %[1]s
    spec:
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        nodeTaintsPolicy: Honor
        matchLabelKeys: [pod-template-hash]
        labelSelector:
          matchLabels:
            app: %[1]s
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        matchLabelKeys: [pod-template-hash]
        labelSelector:
          matchLabels:
            app: %[1]s
      containers:
      - name: %[2]s
        image: lab/%[2]s
%[4]s`, name, image, replicas, container)
}

// echoContainer is the rest of the container of an echo.
func echoContainer(service string) string {
	return fmt.Sprintf(`        ports:
        - {name: http, containerPort: 8080}
        - {name: tcp, containerPort: 8081}
        - {name: udp, containerPort: 8082, protocol: UDP}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: ZONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}}
        - {name: SERVICE, value: %s}
        readinessProbe:
          httpGet: {path: /readyz, port: http}
          periodSeconds: 1
`, service)
}

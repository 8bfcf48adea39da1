package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EchoManifests are a Deployment of the image lab/echo, spread over zones and nodes, and
// a Service of the same name in front of it, for all protocols and, where the lab has
// both, both families. The spec of the Service is what is given in addition, one line of
// YAML each.
func EchoManifests(name string, replicas int, spec ...string) string {
	var extra strings.Builder
	for _, line := range spec {
		fmt.Fprintf(&extra, "  %s\n", line)
	}
	return echoService(name, extra.String()) + "---\n" + deployment(name, "echo", replicas, echoContainer(name))
}

// UnevenEchoManifests are an echo Service with its own number of endpoints in each zone:
// a Deployment for each, named after the Service and the zone.
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

// echoService is the Service of echoes, with extra lines of its spec.
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

// ClientManifests are a Deployment of the image lab/client, spread over zones and nodes:
// pods to send from.
func ClientManifests(name string, replicas int) string {
	return deployment(name, "client", replicas, "")
}

// DemoEndpoints is how many endpoints the demonstration has in each zone: as few as a
// small Service has.
const DemoEndpoints = 2

// DemoManifests are what the demonstration runs, for a number of zones: a namespace
// with an echo Service and a client in each zone.
func DemoManifests(namespace string, zones int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n", namespace) +
		EchoManifests("echo", zones*DemoEndpoints) + "---\n" + ClientManifests("client", zones)
}

// deployment spreads pods of an image of the lab. A node or zone that is down must not
// keep pods from others.
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

// echoContainer is the rest of the container of an echo: what it is to say of itself.
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

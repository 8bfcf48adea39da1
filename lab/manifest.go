package lab

import (
	_ "embed" // for manifests
	"maps"
	"slices"
	"strconv"
	"strings"
)

var (
	//go:embed manifests/cluster.yaml
	clusterManifests string
	//go:embed manifests/storage.yaml
	storageManifests string
	//go:embed manifests/dns.yaml
	dnsTemplate string
	//go:embed manifests/Corefile
	corefile string
	//go:embed manifests/webhooks.yaml
	webhookProbes string

	//go:embed manifests/echo-service.yaml
	echoService string
	//go:embed manifests/echo-container.yaml
	echoContainer string
	//go:embed manifests/echo-in-zone.yaml
	echoInZone string
	// spread spreads the pods of an image over zones and nodes. Pods that are down do not block
	// others.
	//go:embed manifests/spread.yaml
	spread string
)

// EchoManifests returns a Deployment of lab/echo, spread over zones and nodes, and a Service of
// the same name for all protocols and families. Additional lines of YAML go into the Service's
// spec.
func EchoManifests(name string, replicas int, spec ...string) string {
	service := echoService
	for _, line := range spec {
		service += "  " + line + "\n"
	}
	return strings.NewReplacer("$NAME", name, "$IMAGE", "echo", "$REPLICAS", strconv.Itoa(replicas)).
		Replace(service + "---\n" + spread + echoContainer)
}

// UnevenEchoManifests returns an echo Service and a Deployment for each zone, with a given number
// of endpoints.
func UnevenEchoManifests(name string, numbers map[string]int) string {
	text := strings.ReplaceAll(echoService, "$NAME", name)
	for _, zone := range slices.Sorted(maps.Keys(numbers)) {
		text += strings.NewReplacer("$NAME", name, "$ZONE", zone, "$REPLICAS", strconv.Itoa(numbers[zone])).
			Replace("---\n" + echoInZone + echoContainer)
	}
	return text
}

// ClientManifests returns a Deployment of lab/client, spread over zones and nodes.
func ClientManifests(name string, replicas int) string {
	return strings.NewReplacer("$NAME", name, "$IMAGE", "client", "$REPLICAS", strconv.Itoa(replicas)).Replace(spread)
}

// DemoEndpoints is the number of endpoints of the demo in each zone.
const DemoEndpoints = 2

// DemoManifests returns the demo's namespace with an echo Service and a client in each zone.
func DemoManifests(namespace string, zones int) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + namespace + "}\n---\n" +
		EchoManifests("echo", zones*DemoEndpoints) + "---\n" + ClientManifests("client", zones)
}

package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Gateway is an Ingress, HTTPRoute or GRPCRoute with a controller that serves it.
type Gateway struct {
	Kind, Namespace, Name string
	Annotations           map[string]string
	// Controller is the name in the IngressClass or GatewayClass, empty if it is unknown.
	Controller string
}

// Gateways has the gateways that send traffic to each Service.
type Gateways map[types.NamespacedName][]Gateway

// Bypass is traffic that reaches a Service past its plan. Command sends it to the cluster IP, empty if no annotation does.
type Bypass struct{ Sentence, Command string }

// gatewayControllers read endpoints and choose among them, and do not follow hints by default.
var gatewayControllers = []struct {
	controller string // without the suffix that some classes have after a slash
	name       string
	// annotation makes the controller connect to the cluster IP of a Service. Services have it, or else Ingresses, or
	// either.
	annotation        string
	onService, either bool
	// setting does the same in an object that is not read.
	setting string
}{
	{controller: "k8s.io/ingress-nginx", name: "ingress-nginx", annotation: "nginx.ingress.kubernetes.io/service-upstream"},
	{controller: "nginx.org/ingress-controller", name: "NGINX Ingress Controller", annotation: "nginx.org/use-cluster-ip"},
	{controller: "gateway.nginx.org/nginx-gateway-controller", name: "NGINX Gateway Fabric", setting: "useClusterIP: true in an UpstreamSettingsPolicy"},
	{controller: "traefik.io/ingress-controller", name: "Traefik", annotation: "traefik.ingress.kubernetes.io/service.nativelb", onService: true},
	{controller: "traefik.io/gateway-controller", name: "Traefik", annotation: "traefik.io/service.nativelb", onService: true},
	{controller: "haproxy-ingress.github.io/controller", name: "HAProxy Ingress", annotation: "haproxy-ingress.github.io/service-upstream", onService: true, either: true},
	{controller: "haproxy.org/ingress-controller", name: "HAProxy Kubernetes Ingress Controller"},
	{controller: "ingress-controllers.konghq.com/kong", name: "Kong", annotation: "ingress.kubernetes.io/service-upstream", onService: true},
	{controller: "konghq.com/kic-gateway-controller", name: "Kong", annotation: "ingress.kubernetes.io/service-upstream", onService: true},
	{controller: "gateway.envoyproxy.io/gatewayclass-controller", name: "Envoy Gateway", setting: "routingType: Service in an EnvoyProxy or BackendTrafficPolicy"},
	{controller: "agentgateway.dev/agentgateway", name: "agentgateway"},
	{controller: "projectcontour.io", name: "Contour"},
	{controller: "istio.io", name: "Istio"},
	{controller: "io.cilium/gateway-controller", name: "Cilium's Envoy"},
	{controller: "cilium.io/ingress-controller", name: "Cilium's Envoy"},
}

// Bypasses describes traffic that reaches a Service past its plan.
func (gateways Gateways) Bypasses(service *corev1.Service) (found []Bypass) {
	for _, g := range gateways[types.NamespacedName{Namespace: service.Namespace, Name: service.Name}] {
		if sentence, command := g.bypasses(service); sentence != "" && !slices.Contains(found, Bypass{sentence, command}) { // a route may have a controller twice
			found = append(found, Bypass{sentence, command})
		}
	}
	return found
}

// bypasses says who chooses endpoints for traffic of the gateway to a Service. It is empty if proxies do.
func (g *Gateway) bypasses(service *corev1.Service) (sentence, command string) {
	sentence = fmt.Sprintf("%s %s/%s: ", g.Kind, g.Namespace, g.Name)
	for _, c := range gatewayControllers {
		if !strings.HasPrefix(g.Controller+"/", c.controller+"/") {
			continue
		}
		sentence += c.name + " chooses endpoints by itself"
		kind, name, annotations := "Ingress", g.Name, g.Annotations
		if c.onService && (!c.either || service.Annotations[c.annotation] != "") {
			annotations = service.Annotations
		}
		if c.onService {
			kind, name = "Service", service.Name
		}
		switch {
		case strings.EqualFold(annotations[c.annotation], "true"):
			return "", ""
		case c.annotation != "":
			return fmt.Sprintf("%s; the annotation %s: \"true\" of the %s sends its traffic to the cluster IP", sentence, c.annotation, kind),
				fmt.Sprintf("kubectl annotate --overwrite %s %s -n %s %s=true", strings.ToLower(kind), name, service.Namespace, c.annotation)
		case c.setting != "":
			sentence += "; " + c.setting + " sends its traffic to the cluster IP"
		}
		return sentence, ""
	}
	return sentence + cmp.Or(plaintext.Of(g.Controller), "its controller") + " may choose endpoints by itself; Vicinity does not know it", ""
}

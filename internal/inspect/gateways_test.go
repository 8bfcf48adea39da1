package inspect

import (
	"cmp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBypasses(t *testing.T) {
	const by = "Ingress shop/front: "
	for name, c := range map[string]struct {
		controller        string
		ingress, service  map[string]string
		sentence, command string
	}{
		"ingress-nginx": {
			controller: "k8s.io/ingress-nginx",
			sentence:   by + `ingress-nginx chooses endpoints by itself; the annotation nginx.ingress.kubernetes.io/service-upstream: "true" of the Ingress sends its traffic to the cluster IP`,
			command:    "kubectl annotate --overwrite ingress front -n shop nginx.ingress.kubernetes.io/service-upstream=true",
		},
		"ingress-nginx, annotated": {controller: "k8s.io/ingress-nginx", ingress: map[string]string{"nginx.ingress.kubernetes.io/service-upstream": "true"}},
		"ingress-nginx, annotated with another value": {
			controller: "k8s.io/ingress-nginx", ingress: map[string]string{"nginx.ingress.kubernetes.io/service-upstream": "false"},
			sentence: by + `ingress-nginx chooses endpoints by itself; the annotation nginx.ingress.kubernetes.io/service-upstream: "true" of the Ingress sends its traffic to the cluster IP`,
			command:  "kubectl annotate --overwrite ingress front -n shop nginx.ingress.kubernetes.io/service-upstream=true",
		},
		"Traefik": {
			controller: "traefik.io/ingress-controller",
			sentence:   by + `Traefik chooses endpoints by itself; the annotation traefik.ingress.kubernetes.io/service.nativelb: "true" of the Service sends its traffic to the cluster IP`,
			command:    "kubectl annotate --overwrite service cart -n shop traefik.ingress.kubernetes.io/service.nativelb=true",
		},
		"Traefik, annotated": {controller: "traefik.io/ingress-controller", service: map[string]string{"traefik.ingress.kubernetes.io/service.nativelb": "true"}},
		"Traefik, annotated on the Ingress": {
			controller: "traefik.io/ingress-controller", ingress: map[string]string{"traefik.ingress.kubernetes.io/service.nativelb": "true"},
			sentence: by + `Traefik chooses endpoints by itself; the annotation traefik.ingress.kubernetes.io/service.nativelb: "true" of the Service sends its traffic to the cluster IP`,
			command:  "kubectl annotate --overwrite service cart -n shop traefik.ingress.kubernetes.io/service.nativelb=true",
		},
		"HAProxy, annotated on the Ingress": {controller: "haproxy-ingress.github.io/controller", ingress: map[string]string{"haproxy-ingress.github.io/service-upstream": "true"}},
		"Traefik for routes, annotated for Ingresses": {
			controller: "traefik.io/gateway-controller", service: map[string]string{"traefik.ingress.kubernetes.io/service.nativelb": "true"},
			sentence: by + `Traefik chooses endpoints by itself; the annotation traefik.io/service.nativelb: "true" of the Service sends its traffic to the cluster IP`,
			command:  "kubectl annotate --overwrite service cart -n shop traefik.io/service.nativelb=true",
		},
		"Envoy Gateway": {
			controller: "gateway.envoyproxy.io/gatewayclass-controller",
			sentence:   by + "Envoy Gateway chooses endpoints by itself; routingType: Service in an EnvoyProxy or BackendTrafficPolicy sends its traffic to the cluster IP",
		},
		"a class of HAProxy": {controller: "haproxy.org/ingress-controller/edge", sentence: by + "HAProxy Kubernetes Ingress Controller chooses endpoints by itself"},
		"an unknown one": {
			controller: "haproxy.org/ingress-controllers",
			sentence:   by + "haproxy.org/ingress-controllers may choose endpoints by itself; Vicinity does not know it",
		},
		"no class": {sentence: by + "its controller may choose endpoints by itself; Vicinity does not know it"},
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", Annotations: c.service}}
			g := Gateway{Kind: "Ingress", Namespace: "shop", Name: "front", Controller: c.controller, Annotations: c.ingress}
			var want []Bypass
			if c.sentence != "" {
				want = []Bypass{{c.sentence, c.command}}
			}
			gateways := Gateways{{Namespace: "shop", Name: "cart"}: {g, g}, {Namespace: "attic", Name: "cart"}: {{Name: "other"}}}
			if got := gateways.Bypasses(service); !slices.Equal(got, want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// An annotation belongs to one controller, and sends its traffic to the cluster IP.
func TestAnnotationsOfGateways(t *testing.T) {
	for _, c := range gatewayControllers {
		g, service, annotations := Gateway{Controller: c.controller}, new(corev1.Service), map[string]string{cmp.Or(c.annotation, "another"): "true"}
		if c.onService {
			service.Annotations = annotations
		} else {
			g.Annotations = annotations
		}
		if got := (Gateways{{}: {g}}).Bypasses(service); (len(got) == 0) != (c.annotation != "") {
			t.Errorf("%s: got %q", c.controller, got)
		}
	}
}

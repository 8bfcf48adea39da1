package doctor

import (
	"cmp"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
)

// readyEndpoints counts the ready endpoints of a Service in the zone and outside.
type readyEndpoints struct{ inside, outside int }

func (e readyEndpoints) areLost() bool { return e.inside > 0 && e.outside == 0 }

// countEndpoints counts a pod once, also if it has an address of each family.
func (r *rehearsal) countEndpoints() {
	counted := map[string]bool{}
	for _, slice := range r.Slices {
		name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			id := name.String() + " " + strings.Join(e.Addresses, " ")
			if e.TargetRef != nil {
				id = name.String() + " " + e.TargetRef.Kind + " " + e.TargetRef.Name
			}
			if counted[id] || !endpoint.StateOf(e).IsReady() {
				continue
			}
			counts := r.endpoints[name]
			if r.isInside(e) {
				counts.inside++
			} else {
				counts.outside++
			}
			counted[id], r.endpoints[name] = true, counts
		}
	}
}

// isInside reports whether an endpoint is in the zone. API servers have the addresses of their nodes, and no zone.
func (r *rehearsal) isInside(e *discoveryv1.Endpoint) bool {
	if e.NodeName != nil {
		if lost, known := r.inZone[*e.NodeName]; known {
			return lost
		}
	}
	return e.Zone != nil && *e.Zone == r.Zone || len(e.Addresses) > 0 && r.inZone[e.Addresses[0]]
}

func allOf(n int, noun string) string {
	if n == 1 {
		return "its only " + noun
	}
	return "all " + plaintext.Plural(n, noun)
}

// podsOf returns the pods that a Service selects, and a command that shows them or else the endpoints.
func (r *rehearsal) podsOf(name types.NamespacedName) (pods []*corev1.Pod, command string) {
	if service := r.services[name]; service != nil && len(service.Spec.Selector) > 0 {
		selects := selectorOf(&metav1.LabelSelector{MatchLabels: service.Spec.Selector})
		return only(r.pods[name.Namespace], selects), "kubectl get pods -o wide -n " + name.Namespace + " -l " + labels.FormatLabels(service.Spec.Selector)
	}
	return nil, "kubectl get endpointslices -n " + name.Namespace + " -l " + discoveryv1.LabelServiceName + "=" + name.Name
}

// addLost adds a finding about a Service that loses all endpoints. effect ends the sentence.
func (r *rehearsal) addLost(c check, object Object, name types.NamespacedName, effect string) {
	pods, command := r.podsOf(name)
	for _, pod := range pods {
		r.workloads[workloadOf(pod)].explained = true
	}
	r.reported[name] = true
	r.add(c, object, fmt.Sprintf("Service %s loses %s%s.", name, allOf(r.endpoints[name].inside, "ready endpoint"), effect), command)
}

// checkMembers checks members that may vote: those of StatefulSets and of etcd.
func (r *rehearsal) checkMembers() {
	for object, w := range r.workloads {
		members := len(w.pods)
		votes := object.Kind == "StatefulSet" || object == Object{staticPods, metav1.NamespaceSystem, "etcd"}
		if !votes || members < 3 || 2*w.stays > members || 2*(w.stays+w.goes) <= members {
			continue
		}
		w.explained = true
		r.add(loseQuorum, object, fmt.Sprintf("%s keeps %d of %s ready, which is no majority.", object, w.stays, plaintext.Plural(members, "member")), showPods(object.Namespace))
	}
}

func showPods(namespace string) string { return "kubectl get pods -o wide -n " + namespace }

// checkControlPlane finds the API servers by their static pods or, without any, by the endpoints of their Service.
func (r *rehearsal) checkControlPlane() {
	name := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	servers := r.endpoints[name]
	if w := r.workloads[Object{staticPods, metav1.NamespaceSystem, "kube-apiserver"}]; w != nil {
		servers = readyEndpoints{len(w.lost), len(w.pods) - len(w.lost)}
	}
	if servers.areLost() {
		r.add(loseControlPlane, Object{Kind: "Zone", Name: r.Zone}, fmt.Sprintf("The cluster loses %s.", allOf(servers.inside, "API server")),
			"kubectl get endpointslices -n default -l kubernetes.io/service-name=kubernetes")
	}
	r.reported[name] = true
}

func (r *rehearsal) checkWebhooks() {
	for i := range r.Webhooks {
		object := Object{Kind: r.Webhooks[i].Kind, Name: r.Webhooks[i].Name}
		for _, webhook := range r.Webhooks[i].Webhooks {
			service := cmp.Or(webhook.Client.Service, new(admissionregistrationv1.ServiceReference))
			name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
			switch policy := webhook.FailurePolicy; {
			case !r.endpoints[name].areLost():
			case policy == nil || *policy == admissionregistrationv1.Fail:
				r.addLost(loseWebhook, object, name, "; writes for the webhook "+webhook.Name+" are refused")
			default:
				timeout := cmp.Or(webhook.TimeoutSeconds, new(int32(10))) // the default of Kubernetes
				r.addLost(loseWebhookSlow, object, name, fmt.Sprintf("; each write for the webhook %s waits up to %d s", webhook.Name, *timeout))
			}
		}
	}
}

// checkServices checks the Services that no other finding names, and the cluster's DNS.
func (r *rehearsal) checkServices() {
	for name, service := range r.services {
		endpoints := r.endpoints[name]
		switch {
		case endpoints.areLost() && name.Namespace == metav1.NamespaceSystem && service.Labels["k8s-app"] == "kube-dns":
			r.addLost(loseDNS, objectOf("Service", service), name, "")
		case r.reported[name]:
		case endpoints.areLost():
			r.addLost(loseServiceAlone, objectOf("Service", service), name, "")
		case len(service.Spec.Selector) > 0 && !intent.IsHeadless(service) && service.Spec.Type != corev1.ServiceTypeExternalName &&
			shift.Exceeds(endpoints.inside, endpoints.outside, r.Bound):
			r.addOverload(service, name, endpoints)
		}
	}
}

// addOverload adds the finding about an overloaded Service. The command adds replicas if one workload has all its pods.
func (r *rehearsal) addOverload(service *corev1.Service, name types.NamespacedName, endpoints readyEndpoints) {
	pods, command := r.podsOf(name)
	owners, needed := map[*workload]bool{}, shift.NeededOutside(endpoints.inside, r.Bound)
	for _, pod := range pods {
		owners[r.workloads[workloadOf(pod)]] = true
	}
	for w := range owners {
		if len(owners) > 1 || !w.scales() {
			break
		}
		replicas := shift.Replicas(len(w.pods), endpoints.outside, needed)
		w.wanted = max(w.wanted, replicas)
		command = fmt.Sprintf("kubectl -n %s scale %s/%s --replicas=%d", name.Namespace, strings.ToLower(w.object.Kind), w.object.Name, replicas)
		if scaler := r.scalers[w.object]; scaler != nil {
			command = patchScaler(scaler, "minReplicas", replicas)
		}
	}
	percent, _ := shift.Overload(endpoints.inside, endpoints.outside)
	r.add(loseOverload, objectOf("Service", service), fmt.Sprintf("Each of %s of Service %s outside the zone gets %d %% more traffic, above %d %%; %d are needed there.",
		plaintext.Plural(endpoints.outside, "ready endpoint"), name, percent, r.Bound, needed), command)
}

func patchScaler(scaler *autoscalingv2.HorizontalPodAutoscaler, field string, replicas int) string {
	return fmt.Sprintf(`kubectl -n %s patch hpa %s -p '{"spec":{"%s":%d}}'`, scaler.Namespace, scaler.Name, field, replicas)
}

// checkWorkloads checks for workloads without a ready pod outside the zone, and for autoscalers that cannot add pods.
func (r *rehearsal) checkWorkloads() {
	for object, w := range r.workloads {
		if w.scales() && w.goes > 0 && w.stays == 0 && !w.explained {
			r.add(loseWorkloadAlone, object, fmt.Sprintf("%s loses %s.", object, allOf(w.goes, "ready pod")), showPods(object.Namespace))
		}
		scaler := r.scalers[object]
		if scaler == nil || len(w.lost) == 0 {
			continue
		}
		name, most := objectOf("HorizontalPodAutoscaler", scaler), int(scaler.Spec.MaxReplicas)
		if w.wanted > most {
			r.add(loseAutoscaler, name, fmt.Sprintf("maxReplicas of %s is %d, and %s needs %d to lose the zone without overload.", name, most, object, w.wanted),
				patchScaler(scaler, "maxReplicas", w.wanted))
		} else if int(max(scaler.Status.DesiredReplicas, scaler.Status.CurrentReplicas)) >= most {
			r.add(loseAutoscaler, name, fmt.Sprintf("%s is at its maximum of %s.", name, plaintext.Plural(most, "replica")), patchScaler(scaler, "maxReplicas", most+len(w.lost)))
		}
	}
}

// checkEvictions checks whether PodDisruptionBudgets allow any eviction after the loss.
func (r *rehearsal) checkEvictions() {
	for _, pdb := range r.PDBs {
		healthy, lost := 0, 0
		for _, pod := range only(r.pods[pdb.Namespace], selectorOf(pdb.Spec.Selector)) {
			if r.inZone[pod.Spec.NodeName] {
				lost++
			} else if ready, _ := coverage.Readiness(pod); ready && pod.DeletionTimestamp == nil {
				healthy++
			}
		}
		desired, object, also := int(pdb.Status.DesiredHealthy), objectOf("PodDisruptionBudget", pdb), ""
		if policy := pdb.Spec.UnhealthyPodEvictionPolicy; policy == nil || *policy != policyv1.AlwaysAllow {
			also = fmt.Sprintf(", also not of its %s in the zone", plaintext.Plural(lost, "pod"))
		}
		if lost > 0 && healthy < desired {
			r.add(loseBudgetFreezes, object, fmt.Sprintf("%s wants %s and keeps %d, so it allows no eviction%s.", object, plaintext.Plural(desired, "healthy pod"), healthy, also),
				"kubectl describe pdb "+pdb.Name+object.at())
		}
	}
}

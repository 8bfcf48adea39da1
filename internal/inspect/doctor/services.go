package doctor

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// handOverTime is how long a hand-over may take before it is reported.
const handOverTime = time.Minute

// troubles are the findings for the troubles in the condition of a Service.
var troubles = map[routing.Trouble]check{
	routing.TroubleHintsLost:   serviceHintsLost,
	routing.TroubleNotWritten:  serviceNotWritten,
	routing.TroubleNeedsGroups: serviceNeedsGroups,
	routing.TroubleAwaitsProxy: serviceAwaitsProxy,
}

// intents has the objects that affect the requests of Services.
type intents struct {
	policies map[string][]*v1alpha1.RoutingPolicy
	defaults map[string][]*v1alpha1.ClusterRoutingPolicy
	// governed are the Services that give names to pods of StatefulSets.
	governed map[types.NamespacedName]bool
}

func (e *examination) intents() intents {
	in := intents{
		policies: map[string][]*v1alpha1.RoutingPolicy{}, defaults: map[string][]*v1alpha1.ClusterRoutingPolicy{}, governed: map[types.NamespacedName]bool{},
	}
	for _, policy := range e.Policies {
		in.policies[policy.Namespace] = append(in.policies[policy.Namespace], policy)
	}
	for _, namespace := range e.Namespaces {
		in.defaults[namespace.Name] = intent.ForNamespace(e.Defaults, namespace.Labels)
	}
	for _, set := range e.StatefulSets {
		if set.Spec.ServiceName != "" {
			in.governed[types.NamespacedName{Namespace: set.Namespace, Name: set.Spec.ServiceName}] = true
		}
	}
	return in
}

// checkServices checks for Services whose request has no effect, or not all of it.
func (e *examination) checkServices() {
	in := e.intents()
	for _, service := range e.Services {
		if service.DeletionTimestamp == nil {
			e.checkService(service, &in)
		}
	}
}

func (e *examination) checkService(service *corev1.Service, in *intents) {
	object := objectOf("Service", service)
	next := "kubectl vicinity explain svc/" + service.Name + object.at()
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
	if e.isServedByNone(service, object, name) || !e.knows(SourceDeployments) {
		return // the controller, which may ignore the Service, is unknown
	}
	request := intent.RequestOf(service, in.policies[service.Namespace], intent.Options{
		TakeOverAuto: e.TakesAuto, Defaults: in.defaults[service.Namespace], GivesNames: in.governed[name],
	})
	if reason := e.Exclusion.Reason(service.Namespace, service.Name); reason != "" {
		reading := inspect.Reading{Input: routing.Input{Service: service, Policies: in.policies[service.Namespace]}, LeftAlone: reason}
		if decision, err := reading.Decide(); err == nil && len(decision.Notes) > 0 && e.isInstalled() && !request.Selected {
			e.add(serviceLeftAlone, object, fmt.Sprintf("%s: %s.", object, sentence(decision.Notes[0])), next)
		}
		return
	}
	asks := request.Source != "" && !request.AsksNothing()
	if !e.isInstalled() {
		if asks && !request.Upstream || request.Groups {
			source := request.Source
			if source == "" {
				source = "annotation " + v1alpha1.AnnotationProxy
			}
			e.add(serviceWithoutController, object, fmt.Sprintf("%s asks for routing (%s), but no vicinity-controller is installed.", object, source), next)
		}
		return
	}
	if strings.HasPrefix(service.Annotations[v1alpha1.AnnotationTopologyMode], v1alpha1.PolicyPrefix) && !e.knows(SourcePolicies) {
		e.checkCondition(service, object, next)
		return // its request is unknown
	}
	// Kubernetes' own routing still applies to traffic from outside, unless the Service is headless. A policy that
	// selects many Services is not meant for those without a choice.
	if asks && !request.Selected && request.NoPlan != "" && (request.Headless || !request.Upstream) {
		e.add(serviceNotRoutable, object, fmt.Sprintf("%s asks for routing (%s), but no plan is possible: %s.", object, request.Source, sentence(request.NoPlan)), next)
	}
	if len(request.Warnings) > request.SelectedWarnings {
		e.add(servicePartIgnored, object, fmt.Sprintf("%s: %s.", object, sentence(strings.Join(request.Warnings, "; "))), next)
	}
	if request.Hides != "" {
		e.add(serviceMembersHidden, object, fmt.Sprintf("%s: %s.", object, sentence(request.Hides)), next)
	}
	if request.Groups && !request.Headless && len(e.Proxies) == 0 && e.knows(SourceDaemonSets) {
		e.add(serviceAwaitsProxy, object, fmt.Sprintf("%s asks for vicinity-proxy, which is not installed.", object), next)
		return
	}
	e.checkCondition(service, object, next)
}

// isServedByNone reports whether a Service is handed over to a vicinity-proxy that does not serve it. Without a
// controller it is a leftover.
func (e *examination) isServedByNone(service *corev1.Service, object Object, name types.NamespacedName) bool {
	if !intent.IsHandedOver(service) || !e.isInstalled() || intent.IsHeadless(service) || service.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	what := ""
	switch {
	case e.knows(SourceDaemonSets) && len(e.Proxies) == 0:
		what = "vicinity-proxy is not installed"
	case e.knows(SourceGroups) && !e.Grouped[name]:
		what = "it has no EndpointGroup"
	default:
		return false
	}
	e.add(serviceServedByNone, object, fmt.Sprintf("%s is handed over to vicinity-proxy, but %s.", object, what),
		"kubectl label service "+service.Name+object.at()+" "+v1alpha1.LabelServiceProxyName+"-")
	return true
}

// checkCondition checks the Service's condition. That of a controller without a ready pod is out of date.
func (e *examination) checkCondition(service *corev1.Service, object Object, next string) {
	condition := routing.ConditionOf(service)
	if condition == nil || e.Controllers[0].Status.ReadyReplicas == 0 {
		return
	}
	for _, trouble := range routing.ReadReason(condition.Reason).Troubles {
		id, known := troubles[trouble]
		if !known || trouble == routing.TroubleAwaitsProxy && e.now().Sub(condition.LastTransitionTime.Time) < handOverTime {
			continue
		}
		e.add(id, object, fmt.Sprintf("%s: %s.", object, sentence(condition.Message)), next)
	}
}

// checkPolicies checks for policies that are invalid or select nothing.
func (e *examination) checkPolicies() {
	if !e.knows(SourceServices) {
		return
	}
	inNamespace := map[string][]*corev1.Service{}
	for _, service := range e.Services {
		inNamespace[service.Namespace] = append(inNamespace[service.Namespace], service)
	}
	for _, policy := range e.Policies {
		object := objectOf("RoutingPolicy", policy)
		next := "kubectl get routingpolicy " + policy.Name + object.at() + " -o yaml"
		if faults := intent.ReadPolicy(policy).Faults; len(faults) > 0 {
			e.add(policyFaulty, object, fmt.Sprintf("%s: %s.", object, sentence(strings.Join(faults, "; "))), next)
		} else if !isUsed(policy, inNamespace[policy.Namespace]) {
			e.add(policyMatchesNothing, object, fmt.Sprintf("%s selects no Service of its namespace, and none names it.", object), next)
		}
	}
	for _, policy := range e.Defaults {
		object := objectOf("ClusterRoutingPolicy", policy)
		next := "kubectl get clusterroutingpolicy " + policy.Name + " -o yaml"
		if faults := intent.ReadClusterPolicy(policy).Faults; len(faults) > 0 {
			e.add(policyFaulty, object, fmt.Sprintf("%s: %s.", object, sentence(strings.Join(faults, "; "))), next)
		} else if e.knows(SourceNamespaces) && !choosesAny(policy, e.Namespaces) {
			e.add(policyMatchesNothing, object, fmt.Sprintf("%s selects no namespace.", object), next)
		}
	}
}

// isUsed reports whether the policy selects any Service, or any names it.
func isUsed(policy *v1alpha1.RoutingPolicy, services []*corev1.Service) bool {
	var selector labels.Selector
	if policy.Spec.Selector != nil {
		selector, _ = metav1.LabelSelectorAsSelector(policy.Spec.Selector) // invalid selectors have a finding
	}
	for _, service := range services {
		if selector != nil && selector.Matches(labels.Set(service.Labels)) {
			return true
		}
		for _, annotation := range []string{v1alpha1.AnnotationTopologyMode, v1alpha1.AnnotationTopologyAwareHints} {
			if service.Annotations[annotation] == v1alpha1.PolicyPrefix+policy.Name {
				return true
			}
		}
	}
	return false
}

func choosesAny(policy *v1alpha1.ClusterRoutingPolicy, namespaces []*corev1.Namespace) bool {
	for _, namespace := range namespaces {
		if len(intent.ForNamespace([]*v1alpha1.ClusterRoutingPolicy{policy}, namespace.Labels)) > 0 {
			return true
		}
	}
	return false
}

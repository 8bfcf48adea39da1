package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
)

// handOverTime is how long a hand-over may take before it is reported.
const handOverTime = time.Minute

// troubles are the findings for the troubles in the condition of a Service.
var troubles = map[routing.Trouble]check{
	routing.TroubleHintsLost:   serviceHintsLost,
	routing.TroubleNotWritten:  serviceNotWritten,
	routing.TroubleNeedsGroups: serviceNeedsGroups,
	routing.TroubleAwaitsProxy: serviceAwaitsProxy,
	routing.TroubleNotInForce:  serviceHintsIgnored,
}

// intents has the objects that affect the requests of Services.
type intents struct {
	policies map[string][]*v1alpha1.RoutingPolicy
	defaults map[string][]*v1alpha1.ClusterRoutingPolicy
	// governed are the Services that give names to pods of StatefulSets.
	governed map[types.NamespacedName]bool
	// noPlugin says that no client is known to ask a DNS server with the plugin vicinity.
	noPlugin bool
	// consumers are programs that follow the hints of some Services. One that follows none is a finding of its own.
	consumers []consumer.Consumer
}

// forZones are the usual hints. The controller knows those of each Service, and reports a Cilium that ignores them.
var forZones = hints.Kinds{Zones: true}

// marked has all marks that make programs follow hints.
var marked = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationTopologyAwareHints: "auto"}}}

func (e *examination) intents() intents {
	in := intents{
		policies: map[string][]*v1alpha1.RoutingPolicy{}, defaults: map[string][]*v1alpha1.ClusterRoutingPolicy{}, governed: map[types.NamespacedName]bool{},
		noPlugin: e.asksNoPlugin(),
		consumers: slices.DeleteFunc(e.Networks.Consumers(), func(c consumer.Consumer) bool {
			why, _ := c.Ignores(marked, forZones)
			return why != ""
		}),
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
	options := e.Settings.Options()
	options.Defaults, options.GivesNames = in.defaults[service.Namespace], in.governed[name]
	request := intent.RequestOf(service, in.policies[service.Namespace], options)
	if reason := e.Exclusion.Reason(service.Namespace, service.Name); reason != "" {
		reading := inspect.Reading{Input: routing.Input{Service: service, Policies: in.policies[service.Namespace]}, LeftAlone: reason}
		if decision, err := reading.Decide(); err == nil && len(decision.Notes) > 0 && e.isInstalled() && !request.Selected {
			e.add(serviceLeftAlone, object, fmt.Sprintf("%s: %s.", object, sentence(decision.Notes[0])), next)
		}
		return
	}
	asks := request.Source != "" && !request.AsksNothing()
	if !e.isInstalled() || e.isOff(ValueRouting) {
		if asks && !request.Upstream || request.Groups {
			e.checkUnrouted(object, cmp.Or(request.Source, request.GroupsBy), next)
		}
		return
	}
	if _, named := intent.NamedPolicy(service); named && !e.knows(SourcePolicies) {
		e.checkCondition(service, object, in, next)
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
	if request.Headless && asks && in.noPlugin {
		e.add(serviceNamesUnserved, object, fmt.Sprintf("%s asks for near endpoints (%s), but no client is known to ask a DNS server with the plugin vicinity.", object, request.Source), "kubectl vicinity dns enable")
	}
	if asks && !request.Upstream && !request.Headless && request.NoPlan == "" {
		for _, bypass := range e.Gateways.Bypasses(service) {
			if bypass.Command != "" { // others cannot be seen to be mended
				e.add(serviceBypassed, object, bypass.Sentence+".", bypass.Command)
			}
		}
	}
	if windows := slices.IndexFunc(e.Nodes, intent.IsWindows); windows >= 0 && request.Groups && request.NoPlan == "" && !e.Settings.WithoutGroups {
		e.add(serviceNotOnWindows, object, fmt.Sprintf("%s asks for vicinity-proxy (%s), and node %s runs Windows.", object, request.GroupsBy, e.Nodes[windows].Name), next)
	}
	if request.Groups && !request.Headless && len(e.Proxies) == 0 && e.knows(SourceDaemonSets) {
		e.add(serviceAwaitsProxy, object, fmt.Sprintf("%s asks for vicinity-proxy, which is not installed.", object), next)
		return
	}
	e.checkCondition(service, object, in, next)
}

// checkUnrouted adds the finding about a Service that no controller routes.
func (e *examination) checkUnrouted(object Object, source, next string) {
	why := "no vicinity-controller is installed"
	if e.isInstalled() {
		why, next = ValueRouting+" is off", e.switchOn(ValueRouting)
	}
	e.add(serviceWithoutController, object, fmt.Sprintf("%s asks for routing (%s), but %s.", object, source, why), next)
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

// whoIgnores says which program ignores the hints of a Service, and why. It is empty if none is known to.
func (in *intents) whoIgnores(service *corev1.Service) string {
	for i := range in.consumers {
		if sentence, ignores := inspect.Follows(&in.consumers[i], service, forZones); ignores {
			return sentence
		}
	}
	return ""
}

// checkCondition checks the Service's condition, and for programs that ignore its hints. The troubles of a controller
// without a ready pod are out of date.
func (e *examination) checkCondition(service *corev1.Service, object Object, in *intents, next string) {
	condition := cmp.Or(routing.ConditionOf(service), new(metav1.Condition))
	reason, ignored := routing.ReadReason(condition.Reason), ""
	if _, taken := service.Labels[v1alpha1.LabelServiceProxyName]; !taken && service.Labels[v1alpha1.LabelRouted] == "true" && !reason.IsBalanced() {
		ignored = in.whoIgnores(service)
	}
	if e.Controllers[0].Status.ReadyReplicas == 0 {
		reason.Troubles = nil
	}
	if ignored != "" && !slices.Contains(reason.Troubles, routing.TroubleNotInForce) { // whose message has the cause
		e.add(serviceHintsIgnored, object, fmt.Sprintf("%s: %s.", object, ignored), next)
	}
	for _, trouble := range reason.Troubles {
		id, known := troubles[trouble]
		switch {
		case !known:
			continue
		case trouble == routing.TroubleNotInForce && !e.Networks.CiliumServes() && e.knows(SourceKubeSystem, SourceConfig):
			continue // it is over
		case trouble == routing.TroubleAwaitsProxy && e.now().Sub(condition.LastTransitionTime.Time) < handOverTime:
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

// checkShifts checks for ZoneShifts that take nothing out of service.
func (e *examination) checkShifts() {
	for _, zs := range e.Shifts {
		object := objectOf("ZoneShift", zs)
		next := "kubectl delete zoneshift " + zs.Name
		accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
		switch until := shift.Until(zs); {
		case until.Before(e.now()):
			e.add(shiftOver, object, fmt.Sprintf("%s ended at %s.", object, plaintext.Clock(until)), next)
		case accepted != nil && accepted.Status == metav1.ConditionFalse:
			e.add(shiftRefused, object, fmt.Sprintf("%s is not accepted: %s.", object, sentence(accepted.Message)), next)
		default:
			e.checkPart(ValueRouting, object, "takes a domain out of service")
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
	return slices.ContainsFunc(namespaces, func(n *corev1.Namespace) bool {
		return len(intent.ForNamespace([]*v1alpha1.ClusterRoutingPolicy{policy}, n.Labels)) > 0
	})
}

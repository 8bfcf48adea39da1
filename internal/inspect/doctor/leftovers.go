package doctor

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// checkLeftovers checks for objects of Vicinity where no controller is installed.
func (e *examination) checkLeftovers() {
	if e.isInstalled() || !e.knows(SourceDeployments) {
		return
	}
	before := len(e.found)
	for i := range e.Webhooks {
		object := Object{Kind: e.Webhooks[i].Kind, Name: e.Webhooks[i].Name}
		kind := "mutatingwebhookconfiguration"
		if object.Kind == inspect.Validating {
			kind = "validatingwebhookconfiguration"
		}
		e.add(leftoverWebhooks, object, fmt.Sprintf("%s exists, but no vicinity-controller is installed.", object), "kubectl delete "+kind+" "+object.Name)
	}
	var routed []string
	for _, service := range e.Services {
		object := objectOf("Service", service)
		// No proxy serves headless Services, whatever their labels are.
		if intent.IsHandedOver(service) && service.Spec.ClusterIP != corev1.ClusterIPNone {
			e.add(leftoverHandedOver, object, fmt.Sprintf("%s is handed over to vicinity-proxy, but no vicinity-controller is installed.", object),
				"kubectl label service "+service.Name+object.at()+" "+v1alpha1.LabelServiceProxyName+"-")
		}
		if service.Labels[v1alpha1.LabelRouted] != "" || routing.ConditionOf(service) != nil {
			routed = append(routed, service.Namespace+"/"+service.Name)
		}
	}
	slices.Sort(routed)
	e.addLeftovers(leftoverServices, Object{Kind: "Service", Name: v1alpha1.LabelRouted}, "with the label or the condition of Vicinity", routed,
		"kubectl get services -A -l "+v1alpha1.LabelRouted)
	e.addLeftovers(leftoverNamespaces, Object{Kind: "Namespace", Name: v1alpha1.LabelBudgets}, "with the label "+v1alpha1.LabelBudgets, labelledNamespaces(e.Namespaces),
		"kubectl label namespaces --all "+v1alpha1.LabelBudgets+"-")
	for _, kind := range []struct{ kind, next string }{
		{"CustomResourceDefinition", "kubectl get crd -o name | grep vicinity.dev"},
		{"Lease", "kubectl get leases -A | grep vicinity"},
		{"PodLocator", "kubectl get podlocators -A -l " + v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController},
		{"PodDisruptionBudget", "kubectl get poddisruptionbudgets -A -l " + v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController},
	} {
		e.addLeftovers(leftoverObjects, Object{Kind: kind.kind, Name: "vicinity"}, "of Vicinity", namesOf(e.Leftovers[kind.kind]), kind.next)
	}
	e.addLeftovers(leftoverSlices, Object{Kind: "EndpointSlice", Name: v1alpha1.LabelRouted}, "with the label "+v1alpha1.LabelRouted, namesOf(e.Leftovers["EndpointSlice"]),
		"kubectl get endpointslices -A -l "+v1alpha1.LabelRouted)
	if len(e.found) == before && e.knows(SourceWebhooks, SourceServices, SourceNamespaces, SourceDefinitions, SourcePDBs, SourceLeftovers) {
		e.add(notInstalled, clusterObject, "No vicinity-controller is installed.", "helm list -A")
	}
}

// addLeftovers adds a finding about objects of one kind, if there are any.
func (e *examination) addLeftovers(c check, object Object, how string, names []string, next string) {
	if len(names) == 0 {
		return
	}
	e.add(c, object, fmt.Sprintf("Left without a vicinity-controller: %s %s (%s).", plaintext.Plural(len(names), object.Kind), how, firstOf(names)), next)
}

func labelledNamespaces(namespaces []*corev1.Namespace) []string {
	var names []string
	for _, n := range namespaces {
		if n.Labels[v1alpha1.LabelBudgets] != "" {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func namesOf(objects []Object) []string {
	var names []string
	for _, o := range objects {
		if o.Namespace != "" {
			names = append(names, o.Namespace+"/"+o.Name)
		} else {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return names
}

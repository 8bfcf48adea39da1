package doctor

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Values of the chart that switch parts on.
const (
	ValueRouting          = "routing.enabled"
	ValueDisruption       = "disruption.enabled"
	ValueEvictionRequests = "disruption.evictionRequests"
	ValueRollouts         = "rollouts.enabled"
	ValueScaleDown        = "rollouts.scaleDown"
	ValuePacing           = "rollouts.pacing"
	ValueOrdinals         = "rollouts.ordinals"
)

// isOff reports whether a controller is installed, and a value of the chart is off for it.
func (e *examination) isOff(value string) bool { return e.isInstalled() && e.Controllers[0].Off[value] }

// checkParts checks for objects that need a part of Vicinity that is off. Budgets, Services and Deployments with the
// scheduling gate are checked elsewhere.
func (e *examination) checkParts() {
	for _, rollout := range e.Rollouts {
		e.checkPart(ValueRollouts, objectOf("DomainRollout", rollout), "asks to replace pods by domain")
	}
	for _, namespace := range e.Namespaces {
		object := objectOf("Namespace", namespace)
		if namespace.Labels[v1alpha1.LabelEvictionRequests] == "true" {
			e.checkPart(ValueEvictionRequests, object, "has the label "+v1alpha1.LabelEvictionRequests)
		}
		if _, paces := namespace.Labels[v1alpha1.PaceScaleDown]; paces {
			e.checkPart(ValuePacing, object, "has the label "+v1alpha1.PaceScaleDown)
		}
		e.checkKeepSpread(object, namespace.Annotations)
	}
	for _, deployment := range e.Deployments {
		e.checkGate(deployment)
		e.checkKeepSpread(objectOf("Deployment", deployment), deployment.Annotations)
	}
	for _, set := range e.StatefulSets {
		if _, spreads := set.Spec.Template.Annotations[v1alpha1.AnnotationSpreadOrdinals]; spreads {
			e.checkPart(ValueOrdinals, objectOf("StatefulSet", set), "has the annotation "+v1alpha1.AnnotationSpreadOrdinals)
		}
	}
}

// checkPart adds a finding about an object if the part that it needs is off.
func (e *examination) checkPart(value string, object Object, needs string) {
	if e.isOff(value) {
		e.add(partOff, object, fmt.Sprintf("%s %s, but %s is off.", object, needs, value), e.switchOn(value))
	}
}

// switchOn returns the command that switches a part on, with budgets if it needs them.
func (e *examination) switchOn(value string) string {
	command := e.upgrade() + " --set " + value + "=true"
	if (value == ValuePacing || value == ValueEvictionRequests) && e.isOff(ValueDisruption) {
		command += "," + ValueDisruption + "=true"
	}
	return command
}

func (e *examination) checkKeepSpread(object Object, annotations map[string]string) {
	if annotations[v1alpha1.AnnotationKeepSpread] != "" {
		e.checkPart(ValueScaleDown, object, "has the annotation "+v1alpha1.AnnotationKeepSpread)
	}
}

func (e *examination) checkGate(deployment *appsv1.Deployment) {
	if !e.isOff(ValueRollouts) || !slices.Contains(deployment.Spec.Template.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: v1alpha1.RolloutGate}) {
		return
	}
	object := objectOf("Deployment", deployment)
	if e.Controllers[0].ReleasesPods {
		e.checkPart(ValueRollouts, object, "has the scheduling gate "+v1alpha1.RolloutGate)
		return
	}
	e.add(gateWithoutRollouts, object, fmt.Sprintf("New pods of %s wait at the scheduling gate %s, and %s is off.", object, v1alpha1.RolloutGate, ValueRollouts), e.switchOn(ValueRollouts))
}

// directive matches the plugin in a Corefile.
var directive = regexp.MustCompile(`(?m)^\s*vicinity\b`)

// asksNoPlugin reports whether no client is known to ask a DNS server with the plugin vicinity.
func (e *examination) asksNoPlugin() bool {
	if !e.knows(SourceDeployments, SourceConfig, SourceClients) || directive.MatchString(e.Corefile) {
		return false
	}
	named := e.namedServers()
	return !slices.ContainsFunc(e.NameServers, func(server *appsv1.Deployment) bool { return e.isAsked(server, named) })
}

// isAsked reports whether a vicinity-dns is the cluster's DNS server, or the address of its Service is named.
func (e *examination) isAsked(server *appsv1.Deployment, named map[netip.Addr]bool) bool {
	return server.Annotations[v1alpha1.AnnotationDNSBefore] != "" || slices.ContainsFunc(e.Services, func(s *corev1.Service) bool {
		if s.Namespace != server.Namespace || len(s.Spec.Selector) == 0 || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(server.Spec.Template.Labels)) {
			return false
		}
		return s.Namespace == metav1.NamespaceSystem && s.Name == "kube-dns" || slices.ContainsFunc(s.Spec.ClusterIPs, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && named[address]
		})
	})
}

// namedServers returns the addresses of DNS servers that pods name, and all addresses in the Corefile.
func (e *examination) namedServers() map[netip.Addr]bool {
	named := map[netip.Addr]bool{}
	add := func(words []string) {
		for _, word := range words {
			if at, err := netip.ParseAddrPort(word); err == nil {
				named[at.Addr()] = true
			} else if address, err := netip.ParseAddr(word); err == nil {
				named[address] = true
			}
		}
	}
	for line := range strings.Lines(e.Corefile) {
		line, _, _ = strings.Cut(line, "#")
		add(strings.Fields(line))
	}
	for _, pod := range e.Pods {
		if pod.Spec.DNSConfig != nil {
			add(pod.Spec.DNSConfig.Nameservers)
		}
	}
	return named
}

// Package service is the admission webhook for Services. It refuses impossible settings, such as invalid topology keys,
// and warns of settings without effect, such as an unknown value. It refuses no stored setting: a Service that was
// written while the webhook was down can still be changed. The routing controller follows the same rules, so without
// the webhook the same settings have no effect.
package service

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/controller"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Path is the path of the webhook.
const Path = "/validate-service"

// Options configure the webhook.
type Options struct {
	// Settings are those of the routing controller.
	routing.Settings
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register makes a manager serve the webhook. The manager's scheme must have the policies, which its cache then has
// from the start.
func Register(mgr manager.Manager, o Options) {
	j := judge{Options: o, objects: mgr.GetClient()}
	admission.Register(mgr, Path, admission.OfWrites(j.judge), admission.Options{
		Webhook: "service", OnFailure: admission.FailOpen, Metrics: o.Metrics,
	})
}

// listTimeout is how long a review waits for a cache that is still filling.
const listTimeout = 500 * time.Millisecond

type judge struct {
	Options
	objects client.Reader
}

func (j judge) judge(ctx context.Context, write admission.Write[corev1.Service]) (admission.Verdict, error) {
	service, stored := write.Object, write.Stored
	if service.DeletionTimestamp != nil || stored != nil && sameSettings(service, stored) {
		return admission.Verdict{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	policies, err := controller.ReadPolicies(ctx, j.objects, write.Namespace)
	var known []string
	if stored != nil {
		known = intent.Impossible(inNamespace(stored, write.Namespace), policies.Own)
	}
	named := inNamespace(service, write.Namespace)
	faults := slices.DeleteFunc(intent.Impossible(named, policies.Own), func(fault string) bool { return slices.Contains(known, fault) })
	if len(faults) > 0 {
		return admission.Verdict{Faults: faults}, nil
	}
	if err != nil {
		return admission.Verdict{}, err // what a Service asks for may be in a policy
	}
	options := j.Settings.Options()
	options.Defaults, options.GivesNames = policies.Defaults, stored != nil && j.givesNames(ctx, named)
	request := intent.RequestOf(named, policies.Own, options)
	warnings := j.warnings(request)
	if request.Groups && !j.WithoutGroups && j.lacksProxies(ctx) {
		warnings = append(warnings, fmt.Sprintf("%s has no effect yet: vicinity-proxy runs on no node; set proxy.enabled=true in Vicinity's chart", request.GroupsBy))
	}
	return admission.Verdict{Warnings: append(warnings, j.windowsWarning(ctx, request)...)}, nil
}

// lacksProxies reports whether no node is known to run vicinity-proxy. The cache has only Leases of proxies.
func (j judge) lacksProxies(ctx context.Context) bool {
	var proxies coordinationv1.LeaseList
	err := j.objects.List(ctx, &proxies, client.Limit(1))
	return err == nil && len(proxies.Items) == 0
}

// givesNames reports whether pods are known to have names under a headless Service. If slices cannot be read, one
// warning less is given.
func (j judge) givesNames(ctx context.Context, service *corev1.Service) bool {
	if !intent.IsHeadless(service) {
		return false
	}
	var list discoveryv1.EndpointSliceList
	if err := j.objects.List(ctx, &list, client.InNamespace(service.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}); err != nil {
		return false
	}
	return intent.GivesNames(shell.Pointers(list.Items))
}

// windowsWarning warns before a Service is handed over. If nodes cannot be read, one warning less is given.
func (j judge) windowsWarning(ctx context.Context, request intent.Request) []string {
	if !request.Groups || request.NoPlan != "" || j.WithoutGroups {
		return nil
	}
	var nodes corev1.NodeList
	if err := j.objects.List(ctx, &nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)}, client.UnsafeDisableDeepCopy); err != nil || len(nodes.Items) == 0 {
		return nil
	}
	return []string{routing.WindowsUnserved}
}

// inNamespace returns the Service with its namespace, which the object of a review may lack.
func inNamespace(service *corev1.Service, namespace string) *corev1.Service {
	named := service.DeepCopy()
	named.Namespace = namespace
	return named
}

func sameSettings(service, stored *corev1.Service) bool {
	return maps.Equal(service.Annotations, stored.Annotations) && maps.Equal(service.Labels, stored.Labels) &&
		reflect.DeepEqual(service.Spec, stored.Spec)
}

func (j judge) warnings(request intent.Request) []string {
	warnings := slices.Clone(request.Warnings)
	if request.Groups && j.WithoutGroups {
		request = request.WithGroups(false)
		warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", request.GroupsBy, intent.GroupsAreOff))
	}
	switch {
	case request.Source == "" || request.Upstream:
	case request.Headless && request.AsksNothing():
	case request.Headless && j.WithoutGroups:
		warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", request.Source, intent.GroupsAreOff))
	case request.Headless:
		if request.Hides != "" {
			warnings = append(warnings, request.Hides)
		}
	case request.NoPlan != "":
		// A policy that selects many Services may not apply to some.
		if !request.Selected {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", request.Source, request.NoPlan))
		}
	case request.Groups:
	case j.WithoutHints:
		warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", request.Source, intent.HintsAreOff))
	default:
		switch need := intent.NeedOfGroups(request.Intent); {
		case need == "":
		case j.WithoutGroups:
			warnings = append(warnings, fmt.Sprintf("%s %s, and %s", request.Source, need, intent.GroupsAreOff))
		default:
			warnings = append(warnings, fmt.Sprintf("%s %s; annotate the Service with %s: \"true\" to have it served by vicinity-proxy", request.Source, need, v1alpha1.AnnotationProxy))
		}
	}
	return warnings
}

package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// granted has the verbs that the controller needs in the whole cluster, by resource. It reads
// through informers, which list and watch. It also gets the configurations of its webhooks by name.
// A comment gives the reason for each other verb.
var granted = map[string]string{
	"nodes":                                      "list watch",
	"services":                                   "list watch patch", // labels
	"services/status":                            "patch",            // the outcome
	"endpointslices.discovery.k8s.io":            "list watch patch", // hints
	"namespaces":                                 "list watch",       // labels
	"routingpolicies.vicinity.dev":               "list watch",
	"routingpolicies.vicinity.dev/status":        "patch",
	"clusterroutingpolicies.vicinity.dev":        "list watch",
	"clusterroutingpolicies.vicinity.dev/status": "patch",
	"zoneshifts.vicinity.dev":                    "list watch",
	"zoneshifts.vicinity.dev/status":             "update",
	"endpointgroups.vicinity.dev":                "list watch create update delete",
	"podlocators.vicinity.dev":                   "list delete", // to delete earlier ones
	"events.events.k8s.io":                       "create patch",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":            "get list watch",
	"validatingwebhookconfigurations.admissionregistration.k8s.io":          "get list watch",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io:vicinity":   "update",
	"validatingwebhookconfigurations.admissionregistration.k8s.io:vicinity": "update",
}

// grantedHere has the verbs that the controller needs in its own namespace only.
var grantedHere = map[string]string{
	"events":                     "create patch", // leader election
	"leases.coordination.k8s.io": "create list watch",
	"leases.coordination.k8s.io:vicinity-controller": "get update",
	"secrets:vicinity-webhook-certificate":           "get list watch update",
}

// grantedProxy has the verbs that the proxy needs in the whole cluster, grantedProxyHere those in
// its own namespace.
var (
	grantedProxy = map[string]string{
		"services":                       "list watch",
		"endpointgroups.vicinity.dev":    "list watch",
		"nodes":                          "get list watch", // its own
		"servicecidrs.networking.k8s.io": "list watch",
		"events.events.k8s.io":           "create",
	}
	grantedProxyHere = map[string]string{
		"leases.coordination.k8s.io":         "get create update",
		"configmaps:vicinity-node-addresses": "get list watch",
	}
)

// verbs returns the verbs that rules allow, by resource and group. A rule for one object adds its
// name after a colon.
func verbs(rules []rbacv1.PolicyRule) map[string][]string {
	all := map[string][]string{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, sub, divided := strings.Cut(resource, "/")
				key := resource
				if group != "" {
					key += "." + group
				}
				if divided {
					key += "/" + sub
				}
				keys := []string{key}
				if len(rule.ResourceNames) > 0 {
					keys = nil
					for _, name := range rule.ResourceNames {
						keys = append(keys, key+":"+name)
					}
				}
				for _, key := range keys {
					all[key] = append(all[key], rule.Verbs...)
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			all[url] = append(all[url], rule.Verbs...)
		}
	}
	return all
}

// excess describes verbs that rules allow but granted lacks, and the reverse.
func excess(rules []rbacv1.PolicyRule, granted map[string]string) []string {
	var wrong []string
	given := verbs(rules)
	for resource, has := range given {
		for _, verb := range has {
			if !slices.Contains(strings.Fields(granted[resource]), verb) {
				wrong = append(wrong, fmt.Sprintf("may %s %s but need not", verb, resource))
			}
		}
	}
	for resource, needs := range granted {
		for verb := range strings.FieldsSeq(needs) {
			if !slices.Contains(given[resource], verb) {
				wrong = append(wrong, fmt.Sprintf("needs to %s %s but may not", verb, resource))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// and merges granted verbs. Later ones replace earlier ones of the same resource.
func and(granted map[string]string, more ...map[string]string) map[string]string {
	all := maps.Clone(granted)
	for _, m := range more {
		maps.Copy(all, m)
	}
	return all
}

// without removes resources from granted verbs.
func without(granted map[string]string, resources ...string) map[string]string {
	rest := maps.Clone(granted)
	for _, resource := range resources {
		delete(rest, resource)
	}
	return rest
}

// A program may do what its features need, and nothing else. Budgets label namespaces and write
// their status. With rollouts, the controller patches deletion costs, evictions, marks, templates
// and replicas. Objects in Vicinity's namespace are allowed by name. The proxy reads and writes its
// own Lease; the DNS server only reads.
func TestProgramsMayDoWhatTheyNeed(t *testing.T) {
	const (
		controller, here = "ClusterRole vicinity-controller", "Role vicinity-controller"
		proxy, proxyHere = "ClusterRole vicinity-proxy", "Role vicinity-proxy"
	)
	unhooked := maps.Clone(granted)
	maps.DeleteFunc(unhooked, func(resource, _ string) bool { return strings.Contains(resource, "webhook") })
	locators := map[string]string{"podlocators.vicinity.dev": "list watch create update delete"}
	located := and(granted, locators, map[string]string{"pods": "list watch"})
	budgets := and(granted, map[string]string{
		"namespaces":                             "get list watch patch", // one label
		"pods":                                   "get list watch",
		"nodes":                                  "get list watch",
		"*.*/scale":                              "get", // the replicas of owners of any kind
		"deployments.apps":                       "list watch",
		"replicasets.apps":                       "list watch",
		"statefulsets.apps":                      "list watch",
		"daemonsets.apps":                        "list watch",
		"poddisruptionbudgets.policy":            "list watch delete", // its own
		"topologydisruptionbudgets.vicinity.dev": "get list watch",
		"topologydisruptionbudgets.vicinity.dev/status": "update",
	})
	requests := map[string]string{"evictions.lifecycle.k8s.io": "list watch", "evictions.lifecycle.k8s.io/status": "update"}
	spread := and(granted, map[string]string{
		"pods": "list watch patch", "pods/eviction": "create", "deployments.apps": "list watch", "replicasets.apps": "list watch",
	})
	for _, test := range []struct {
		set, role string
		needs     map[string]string
	}{
		{"", controller, granted},
		{"", here, grantedHere},
		// Services that vicinity-proxy serves must return to kube-proxy. Until then groups follow
		// their pods.
		{noWebhooks + ",routing.groups.enabled=false", controller, unhooked},
		{noWebhooks + ",routing.groups.enabled=false", here, map[string]string{
			"events": "create patch", "leases.coordination.k8s.io": "create", "leases.coordination.k8s.io:vicinity-controller": "get update",
		}},
		{"proxy.enabled=true", here, and(grantedHere, map[string]string{"configmaps:" + v1alpha1.ConfigMapNodeAddresses: "get list watch update"})},
		{"locators.enabled=true,locators.all=true", controller, located},
		{"locators.enabled=false,locators.all=true", controller, granted},
		{"disruption.enabled=true", controller, budgets},
		{"disruption.enabled=true,locators.enabled=true", controller, and(budgets, locators)},
		{"disruption.enabled=true,disruption.evictionRequests=true", controller, and(budgets, requests)},
		{"disruption.enabled=true,disruption.projectPDBs=true", controller, and(budgets, map[string]string{"poddisruptionbudgets.policy": "list watch create update delete"})},
		{"disruption.enabled=true,rollouts.pacing=true", controller, and(budgets, map[string]string{
			"pods": "get list watch patch", "deployments.apps": "get list watch patch", "replicasets.apps": "get list watch patch", "statefulsets.apps": "get list watch patch",
		})},
		{"disruption.enabled=true,rollouts.pacing=true", here, and(grantedHere, map[string]string{"configmaps:" + v1alpha1.ConfigMapScaleDowns: "get patch"})},
		{"rollouts.scaleDown=true", controller, spread},
		{"rollouts.scaleDown=true,locators.enabled=true", controller, and(spread, locators)},
		{"disruption.enabled=true,disruption.evictionRequests=true,rollouts.scaleDown=true", controller, and(budgets, requests, map[string]string{
			"pods": "get list watch patch", "pods/eviction": "create", "evictionrequests.lifecycle.k8s.io": "get create update",
		})},
		{"rollouts.enabled=true", controller, and(granted, map[string]string{
			"pods": "get list watch patch delete", "pods/eviction": "create", "controllerrevisions.apps": "get list watch", "poddisruptionbudgets.policy": "list watch",
			"statefulsets.apps": "get list watch patch", "daemonsets.apps": "get list watch patch",
			"deployments.apps": "get list watch patch", "replicasets.apps": "get list watch",
			"domainrollouts.vicinity.dev": "list watch", "domainrollouts.vicinity.dev/status": "update",
		})},
		// Users switched rollouts off: pods lose the gate.
		{"rollouts.enabled=false", controller, and(granted, map[string]string{"pods": "list patch"})},
		{"routing.enabled=false,locators.enabled=true", controller, map[string]string{
			"nodes": "list watch", "services": "list watch", "routingpolicies.vicinity.dev": "list watch", "clusterroutingpolicies.vicinity.dev": "list watch",
			"pods": "list watch", "podlocators.vicinity.dev": "list watch create update delete", "events.events.k8s.io": "create patch",
		}},
		{"routing.enabled=false,disruption.enabled=true", controller, without(budgets,
			"services", "services/status", "endpointslices.discovery.k8s.io", "endpointgroups.vicinity.dev", "routingpolicies.vicinity.dev",
			"routingpolicies.vicinity.dev/status", "clusterroutingpolicies.vicinity.dev", "clusterroutingpolicies.vicinity.dev/status", "zoneshifts.vicinity.dev/status")},
		{"routing.enabled=false,disruption.enabled=true", here, and(grantedHere, map[string]string{"leases.coordination.k8s.io": "create"})},
		{"rollouts.ordinals=true", controller, and(granted, map[string]string{
			"persistentvolumeclaims": "get", "persistentvolumes": "get", "storageclasses.storage.k8s.io": "get",
		})},
		{"proxy.enabled=true", proxy, grantedProxy},
		{"proxy.enabled=true", proxyHere, grantedProxyHere},
		{withTaint, proxy, and(grantedProxy, map[string]string{"nodes": "get list watch patch"})},
		{"proxy.enabled=true,proxy.allServices=true", proxy, and(grantedProxy, map[string]string{"endpointslices.discovery.k8s.io": "list watch"})},
		{"proxy.enabled=true,proxy.allServices=true", proxyHere, grantedProxyHere},
		{"dns.enabled=true", "ClusterRole vicinity-dns", map[string]string{
			"namespaces": "list watch", "services": "list watch", "nodes": "list watch", "endpointslices.discovery.k8s.io": "list watch",
			"endpointgroups.vicinity.dev": "list watch", "podlocators.vicinity.dev": "list watch",
		}},
	} {
		var rules []rbacv1.PolicyRule
		if r := rendered(t, strings.Fields(test.set)...); strings.HasPrefix(test.role, "Role ") {
			rules = object[*rbacv1.Role](t, r, test.role).Rules
		} else {
			rules = object[*rbacv1.ClusterRole](t, r, test.role).Rules
		}
		for _, wrong := range excess(rules, test.needs) {
			t.Errorf("with %q %s %s", test.set, test.role, wrong)
		}
	}
}

// The rights to read workloads of other kinds come only from ClusterRoles that carry the label.
func TestRightsOnOtherKindsAreAggregated(t *testing.T) {
	const role = "ClusterRole vicinity-controller-workloads"
	if _, found := objects(t, rendered(t))[role]; found {
		t.Error("the role exists without rollouts")
	}
	found := object[*rbacv1.ClusterRole](t, rendered(t, "rollouts.enabled=true"), role)
	if len(found.Rules) > 0 || found.AggregationRule == nil || len(found.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Fatalf("the role is %+v", found)
	}
	if selector := found.AggregationRule.ClusterRoleSelectors[0]; !maps.Equal(selector.MatchLabels, map[string]string{v1alpha1.LabelAggregate: "true"}) || len(selector.MatchExpressions) > 0 {
		t.Errorf("the role selects %+v", selector)
	}
}

// A tenant who can write an EndpointGroup or a PodLocator can claim the address of another tenant's
// pod. One who can write the status of a budget can remove its reservations.
func TestUsersMayWritePoliciesAndNothingElse(t *testing.T) {
	r := rendered(t)
	const label = "rbac.authorization.k8s.io/aggregate-to-"
	for _, test := range []struct {
		role    string
		granted map[string]string
		into    []string
	}{
		{"view", map[string]string{
			"routingpolicies.vicinity.dev": "get list watch", "routingpolicies.vicinity.dev/status": "get list watch",
			"clusterroutingpolicies.vicinity.dev": "get list watch", "clusterroutingpolicies.vicinity.dev/status": "get list watch",
			"zoneshifts.vicinity.dev": "get list watch", "zoneshifts.vicinity.dev/status": "get list watch",
			"endpointgroups.vicinity.dev": "get list watch", "podlocators.vicinity.dev": "get list watch",
			"topologydisruptionbudgets.vicinity.dev": "get list watch", "topologydisruptionbudgets.vicinity.dev/status": "get list watch",
			"domainrollouts.vicinity.dev": "get list watch", "domainrollouts.vicinity.dev/status": "get list watch",
		}, []string{"view", "edit", "admin"}},
		{"edit", map[string]string{
			"routingpolicies.vicinity.dev":           "create update patch delete deletecollection",
			"topologydisruptionbudgets.vicinity.dev": "create update patch delete deletecollection",
			"domainrollouts.vicinity.dev":            "create update patch delete deletecollection",
		}, []string{"edit", "admin"}},
	} {
		role := object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-"+test.role)
		for _, wrong := range excess(role.Rules, test.granted) {
			t.Errorf("a user with the role %s %s", test.role, wrong)
		}
		for _, into := range []string{"view", "edit", "admin"} {
			if got, want := role.Labels[label+into] == "true", slices.Contains(test.into, into); got != want {
				t.Errorf("the role %s is part of the cluster's %s: %t, want %t", test.role, into, got, want)
			}
		}
	}
}

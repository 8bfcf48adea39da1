package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// granted are the verbs that the controller needs of the whole cluster, by resource.
// What it decides from it reads through informers, which list and watch; the
// configurations of its webhooks it asks for by name, too. Whoever gives it more says
// here why.
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
	"endpointgroups.vicinity.dev":                "list watch create update delete",
	"podlocators.vicinity.dev":                   "list delete", // those of before go
	"events.events.k8s.io":                       "create patch",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":            "get list watch",
	"validatingwebhookconfigurations.admissionregistration.k8s.io":          "get list watch",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io:vicinity":   "update",
	"validatingwebhookconfigurations.admissionregistration.k8s.io:vicinity": "update",
}

// grantedHere are those that it needs of its own namespace only.
var grantedHere = map[string]string{
	"events":                     "create patch", // who leads
	"leases.coordination.k8s.io": "create list watch",
	"leases.coordination.k8s.io:vicinity-controller": "get update",
	"secrets:vicinity-webhook-certificate":           "get list watch update",
}

// grantedProxy are the verbs that the proxy needs of the whole cluster, and
// grantedProxyHere those of its own namespace.
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

// verbs are what rules allow, by resource with its group, and with the name after a
// colon where only an object of a name is meant.
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

// excess is what rules allow and nobody granted, or the other way round.
func excess(rules []rbacv1.PolicyRule, granted map[string]string) []string {
	var wrong []string
	given := verbs(rules)
	for resource, has := range given {
		for _, verb := range has {
			if !slices.Contains(strings.Fields(granted[resource]), verb) {
				wrong = append(wrong, fmt.Sprintf("may %s %s and does not need to", verb, resource))
			}
		}
	}
	for resource, needs := range granted {
		for verb := range strings.FieldsSeq(needs) {
			if !slices.Contains(given[resource], verb) {
				wrong = append(wrong, fmt.Sprintf("needs to %s %s and may not", verb, resource))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func TestControllerMayDoWhatItNeeds(t *testing.T) {
	r := rendered(t)
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, granted) {
		t.Errorf("in the cluster the controller %s", wrong)
	}
	for _, wrong := range excess(object[*rbacv1.Role](t, r, "Role vicinity-controller").Rules, grantedHere) {
		t.Errorf("in its namespace the controller %s", wrong)
	}
}

// With pacing the controller keeps what scale-downs want, in an object that it cannot make, and in no other.
func TestControllerMayKeepScaleDowns(t *testing.T) {
	here := maps.Clone(grantedHere)
	here["configmaps:"+v1alpha1.ConfigMapScaleDowns] = "get patch"
	r := rendered(t, "disruption.enabled=true,rollouts.pacing=true")
	for _, wrong := range excess(object[*rbacv1.Role](t, r, "Role vicinity-controller").Rules, here) {
		t.Errorf("in its namespace the controller %s", wrong)
	}
	if kept := object[*corev1.ConfigMap](t, r, "ConfigMap "+v1alpha1.ConfigMapScaleDowns); kept.Namespace != namespace || len(kept.Data) > 0 {
		t.Errorf("the chart makes %+v", kept)
	}
}

// With the proxy the controller publishes the addresses of nodes, in an object that it
// cannot make, and in no other.
func TestControllerMayPublishForTheProxy(t *testing.T) {
	here := maps.Clone(grantedHere)
	here["configmaps:vicinity-node-addresses"] = "get list watch update"
	r := rendered(t, "proxy.enabled=true")
	for _, wrong := range excess(object[*rbacv1.Role](t, r, "Role vicinity-controller").Rules, here) {
		t.Errorf("in its namespace the controller %s", wrong)
	}
	published := object[*corev1.ConfigMap](t, r, "ConfigMap "+v1alpha1.ConfigMapNodeAddresses)
	if published.Namespace != namespace || len(published.Data) > 0 {
		t.Errorf("the chart makes %+v", published)
	}
	for set, want := range map[string]bool{"proxy.enabled=true": true, "proxy.enabled=false": false} {
		args := object[*appsv1.Deployment](t, rendered(t, set), "Deployment vicinity-controller").Spec.Template.Spec.Containers[0].Args
		if got := slices.Contains(args, "--publish-node-addresses"); got != want {
			t.Errorf("%s: the controller is told to publish: %t", set, got)
		}
	}
}

// With PodLocators the controller sees all pods. It is told which pods get one, or that those of
// before go.
func TestControllerMayLocatePods(t *testing.T) {
	more := maps.Clone(granted)
	more["pods"] = "list watch"
	more["podlocators.vicinity.dev"] = "list watch create update delete"
	for set, want := range map[string]string{
		"locators.enabled=true": "--locators=auto",
		"locators.enabled=true,locators.all=true,locators.labels={a,b.example/c}": "--locators=all --locator-labels=a,b.example/c",
		"locators.enabled=false,locators.all=true,locators.labels={a}":            "--locators=off",
	} {
		r, may := rendered(t, set), more
		if want == "--locators=off" {
			may = granted
		}
		for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, may) {
			t.Errorf("%s: in the cluster the controller %s", set, wrong)
		}
		args := object[*appsv1.Deployment](t, r, "Deployment vicinity-controller").Spec.Template.Spec.Containers[0].Args
		args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, "--locator") })
		if got := strings.Join(args, " "); got != want {
			t.Errorf("%s: the controller has %q, want %q", set, got, want)
		}
	}
}

// With budgets the controller labels namespaces, writes the status of budgets, and reads what
// decisions are made from; PodDisruptionBudgets it writes only if it is to.
func TestControllerMayKeepBudgets(t *testing.T) {
	for set, extra := range map[string]map[string]string{
		"":                       nil,
		",locators.enabled=true": {"podlocators.vicinity.dev": "list watch create update delete"},
		",disruption.evictionRequests=true": {
			"evictions.lifecycle.k8s.io": "list watch", "evictions.lifecycle.k8s.io/status": "update",
		},
		",disruption.projectPDBs=true": {"poddisruptionbudgets.policy": "list watch create update delete"},
	} {
		may := maps.Clone(granted)
		maps.Copy(may, map[string]string{
			"namespaces":                             "get list watch patch", // one label
			"pods":                                   "get list watch",
			"nodes":                                  "get list watch",
			"*.*/scale":                              "get", // the replicas of owners of any kind
			"deployments.apps":                       "list watch",
			"replicasets.apps":                       "list watch",
			"statefulsets.apps":                      "list watch",
			"daemonsets.apps":                        "list watch",
			"podgroups.scheduling.k8s.io":            "list watch",
			"compositepodgroups.scheduling.k8s.io":   "list watch",
			"poddisruptionbudgets.policy":            "list watch delete", // of its own
			"topologydisruptionbudgets.vicinity.dev": "get list watch",
			"topologydisruptionbudgets.vicinity.dev/status": "update",
		})
		maps.Copy(may, extra)
		r := rendered(t, "disruption.enabled=true"+set)
		for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, may) {
			t.Errorf("with budgets%s the controller %s", set, wrong)
		}
	}
}

// With rollouts.scaleDown the controller writes deletion costs and evicts pods.
func TestControllerMayKeepSpreads(t *testing.T) {
	for set, extra := range map[string]map[string]string{
		"":                       nil,
		",locators.enabled=true": {"podlocators.vicinity.dev": "list watch create update delete"},
	} {
		may := maps.Clone(granted)
		maps.Copy(may, map[string]string{
			"pods": "list watch patch", "pods/eviction": "create", "deployments.apps": "list watch", "replicasets.apps": "list watch",
		})
		maps.Copy(may, extra)
		r := rendered(t, "rollouts.scaleDown=true"+set)
		for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, may) {
			t.Errorf("with rollouts.scaleDown%s the controller %s", set, wrong)
		}
	}
	const all = "disruption.enabled=true,disruption.evictionRequests=true"
	with := verbs(object[*rbacv1.ClusterRole](t, rendered(t, all+",rollouts.scaleDown=true"), "ClusterRole vicinity-controller").Rules)
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, rendered(t, all), "ClusterRole vicinity-controller").Rules, joined(with)) {
		switch wrong {
		case "needs to patch pods and may not", "needs to create pods/eviction and may not",
			"needs to get evictionrequests.lifecycle.k8s.io and may not", "needs to create evictionrequests.lifecycle.k8s.io and may not",
			"needs to update evictionrequests.lifecycle.k8s.io and may not":
		default:
			t.Errorf("beside budgets, without rollouts.scaleDown the controller %s", wrong)
		}
	}
}

// With rollouts.enabled the controller evicts pods, deletes those that policies let it, and restores templates.
func TestControllerMayRollOut(t *testing.T) {
	may := maps.Clone(granted)
	maps.Copy(may, map[string]string{
		"pods": "get list watch patch delete", "pods/eviction": "create", "controllerrevisions.apps": "get list watch", "poddisruptionbudgets.policy": "list watch",
		"statefulsets.apps": "get list watch patch", "daemonsets.apps": "get list watch patch",
		"deployments.apps": "get list watch patch", "replicasets.apps": "get list watch",
		"domainrollouts.vicinity.dev": "list watch", "domainrollouts.vicinity.dev/status": "update",
	})
	r := rendered(t, "rollouts.enabled=true")
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, may) {
		t.Errorf("with rollouts.enabled the controller %s", wrong)
	}
}

// With rollouts.ordinals the controller reads which nodes the volumes of new pods are for.
func TestControllerMaySpreadOrdinals(t *testing.T) {
	may := maps.Clone(granted)
	maps.Copy(may, map[string]string{"persistentvolumeclaims": "get", "persistentvolumes": "get", "storageclasses.storage.k8s.io": "get"})
	r := rendered(t, "rollouts.ordinals=true")
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, may) {
		t.Errorf("with rollouts.ordinals the controller %s", wrong)
	}
}

// joined are verbs as a map of what is granted has them.
func joined(verbs map[string][]string) map[string]string {
	texts := map[string]string{}
	for resource, all := range verbs {
		texts[resource] = strings.Join(all, " ")
	}
	return texts
}

// A proxy reads: the only thing that it writes beside events is its own lease.
func TestProxyMayDoWhatItNeeds(t *testing.T) {
	all := maps.Clone(grantedProxy)
	all["endpointslices.discovery.k8s.io"] = "list watch"
	for set, granted := range map[string]map[string]string{"": grantedProxy, ",proxy.allServices=true": all} {
		r := rendered(t, "proxy.enabled=true"+set)
		for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-proxy").Rules, granted) {
			t.Errorf("in the cluster the proxy%s %s", set, wrong)
		}
		for _, wrong := range excess(object[*rbacv1.Role](t, r, "Role vicinity-proxy").Rules, grantedProxyHere) {
			t.Errorf("in its namespace the proxy%s %s", set, wrong)
		}
	}
}

// A DNS server reads.
func TestDNSMayDoWhatItNeeds(t *testing.T) {
	granted := map[string]string{
		"namespaces": "list watch", "services": "list watch", "nodes": "list watch", "endpointslices.discovery.k8s.io": "list watch",
		"endpointgroups.vicinity.dev": "list watch", "podlocators.vicinity.dev": "list watch",
	}
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, rendered(t, "dns.enabled=true"), "ClusterRole vicinity-dns").Rules, granted) {
		t.Errorf("the DNS server %s", wrong)
	}
}

// What is switched off needs no permission, but for the groups: Services that
// vicinity-proxy serves have to go back to kube-proxy, and groups follow their pods until
// they have.
func TestPermissionsGoWithTheirFeatures(t *testing.T) {
	r := rendered(t, noWebhooks+",routing.groups.enabled=false")
	needed := maps.Clone(granted)
	maps.DeleteFunc(needed, func(resource, _ string) bool { return strings.Contains(resource, "webhook") })
	for _, wrong := range excess(object[*rbacv1.ClusterRole](t, r, "ClusterRole vicinity-controller").Rules, needed) {
		t.Errorf("without webhooks and groups the controller %s", wrong)
	}
	got := verbs(object[*rbacv1.Role](t, r, "Role vicinity-controller").Rules)
	want := map[string]string{"events": "create patch", "leases.coordination.k8s.io": "create", "leases.coordination.k8s.io:vicinity-controller": "get update"}
	if wrong := excess(object[*rbacv1.Role](t, r, "Role vicinity-controller").Rules, want); len(wrong) > 0 {
		t.Errorf("without webhooks and groups the controller %q; it may %v", wrong, got)
	}
}

// A tenant who may write an EndpointGroup or a PodLocator can claim the address of another's
// pod, and one who may write the status of a budget can take its reservations away.
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
			t.Errorf("who has the role %s %s", test.role, wrong)
		}
		for _, into := range []string{"view", "edit", "admin"} {
			if got, want := role.Labels[label+into] == "true", slices.Contains(test.into, into); got != want {
				t.Errorf("the role %s is part of the cluster's %s: %t, want %t", test.role, into, got, want)
			}
		}
	}
}

package agent

import (
	rbacv1 "k8s.io/api/rbac/v1"
)

// Rules are all that an agent may do in the cluster, for its ClusterRole.
func Rules() []rbacv1.PolicyRule {
	rule := func(group string, resources, verbs []string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
	}
	dns := rule("", []string{"services"}, []string{"get"})
	dns.ResourceNames = []string{dnsService}
	return []rbacv1.PolicyRule{
		dns,
		rule("", []string{"nodes"}, []string{"create", "get", "list", "watch", "patch"}),
		rule("", []string{"nodes/status"}, []string{"patch"}),
		rule("", []string{"pods"}, []string{"get", "list", "watch", "delete"}),
		rule("", []string{"pods/status"}, []string{"patch"}),
		rule("", []string{"configmaps", "secrets"}, []string{"get"}),
		rule("", []string{"serviceaccounts/token"}, []string{"create"}),
		rule("", []string{"events"}, []string{"create", "patch", "update"}),
		rule("coordination.k8s.io", []string{"leases"}, []string{"create", "get", "update"}),
	}
}

package controlplane

import (
	"context"
	"fmt"
)

// grant gives a user a role in the whole cluster.
type grant struct {
	name, role, user string
}

// grants are those that a cluster's installer makes. Those of the controllers, the
// scheduler and kube-proxy are made by the API server itself.
func grants() []grant {
	return []grant{
		// An agent may speak for many nodes. The node authorizer, made for a kubelet
		// that speaks for one, knows no such user; so it has a kubelet's role by name.
		{name: "vicinity:lab-agent", role: "system:node", user: userAgent},
		// Logs, exec and port forwarding: what the API server asks of an agent.
		{name: "vicinity:kubelet-api", role: "system:kubelet-api-admin", user: userKubeletClient},
	}
}

func (g grant) path() string {
	return "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/" + g.name
}

func (g grant) object() []byte {
	return fmt.Appendf(nil, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %q}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %q}]
`, g.name, g.role, g.user)
}

// grantAll makes all grants. A restart finds them made and makes them again.
func (c *ControlPlane) grantAll(ctx context.Context) error {
	for _, grant := range grants() {
		if err := c.anyServer(func(server string) error {
			return c.admin.apply(ctx, server+grant.path(), grant.object())
		}); err != nil {
			return fmt.Errorf("granting role %q to user %q: %w", grant.role, grant.user, err)
		}
	}
	return nil
}

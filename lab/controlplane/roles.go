package controlplane

import (
	"context"
	"fmt"

	"vicinity.dev/vicinity/lab/storage"
)

type grant struct {
	name, role, user string
}

// grants are those that an installer makes; the API server makes those of its own
// components.
func grants() []grant {
	return []grant{
		// All kubelets of a lab are one user, and an agent acts for many nodes. The node
		// authorizer does not support that, so they get a kubelet's role.
		{name: "vicinity:lab-kubelet", role: "system:node", user: userKubelet},
		{name: "vicinity:lab-agent", role: "system:node", user: userAgent},
		// What makes volumes for claims, in the runtime.
		{name: "vicinity:lab-storage", role: "system:persistent-volume-provisioner", user: userStorage},
		// Logs, exec and port forwarding: the API server's requests to a kubelet.
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

func (c *ControlPlane) grantAll(ctx context.Context) error {
	for _, grant := range grants() {
		if err := c.admin.apply(ctx, c.api(grant.path()), grant.object()); err != nil {
			return fmt.Errorf("granting role %q to user %q: %w", grant.role, grant.user, err)
		}
	}
	return nil
}

// provideStorage makes the StorageClass whose volumes the runtime makes, if there is one.
func (c *ControlPlane) provideStorage(ctx context.Context) error {
	if c.config.Shape.ControlPlaneOnly {
		return nil
	}
	const path = "/apis/storage.k8s.io/v1/storageclasses/" + storage.Class
	if err := c.admin.apply(ctx, c.api(path), []byte(storage.ClassManifest)); err != nil {
		return fmt.Errorf("making StorageClass %q: %w", storage.Class, err)
	}
	return nil
}

package lab

import (
	"context"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/state"
)

// ServeRuntime runs the containers of a lab's nodes until the context ends.
func ServeRuntime(ctx context.Context, dir state.Dir) error {
	return cri.Run(ctx, cri.Options{State: dir, Kubeconfig: dir.ComponentKubeconfig(controlplane.Kubelet)})
}

package lab

import (
	"context"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/state"
)

// ServeGateway runs the gateway component: it forwards connections from the host to the
// lab's API server until the context ends.
func ServeGateway(ctx context.Context, dir state.Dir) error {
	found, err := dir.Load()
	if err != nil {
		return err
	}
	plane, err := controlplane.New(controlplane.Config{Dir: dir, Shape: found.Shape, Port: found.Port})
	if err != nil {
		return err
	}
	return plane.ServeGateway(ctx)
}

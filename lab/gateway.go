package lab

import (
	"context"
	"io"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/state"
)

// ServeGateway runs the gateway component: it forwards connections from the host to the
// lab's API servers until the context ends.
func ServeGateway(ctx context.Context, dir state.Dir, log io.Writer) error {
	found, err := dir.Load()
	if err != nil {
		return err
	}
	plane, err := controlplane.New(controlplane.Config{Dir: dir, Shape: found.Shape, Port: found.Port})
	if err != nil {
		return err
	}
	return plane.ServeGateway(ctx, log)
}

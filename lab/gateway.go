package lab

import (
	"context"
	"io"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/state"
)

// ServeGateway forwards connections from the host to the API servers of the lab with a
// state folder, until the context ends. It is the gateway component's process.
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

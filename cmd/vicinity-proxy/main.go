// Command vicinity-proxy serves Services on a node: it programs nftables for Services that have EndpointGroups,
// or for all, so that clients on the node reach the endpoints that their zone is to use.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks the program to finish; a second one ends it.
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "vicinity-proxy: "+err.Error())
		os.Exit(1)
	}
}

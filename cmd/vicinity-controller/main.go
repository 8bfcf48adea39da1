// Command vicinity-controller routes the traffic of Services by topology: it decides
// which endpoints the clients of each zone use, and writes that where proxies read it.
// It also serves the admission webhooks that keep and check what it and users write.
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
		fmt.Fprintln(os.Stderr, "vicinity-controller: "+err.Error())
		os.Exit(1)
	}
}

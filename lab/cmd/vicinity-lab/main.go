// Command vicinity-lab runs a real multi-zone Kubernetes on this machine. "vicinity lab" runs
// it, too.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"vicinity.dev/vicinity/lab/commands"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the command finishes; a second one kills it.
	context.AfterFunc(ctx, stop)
	return commands.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

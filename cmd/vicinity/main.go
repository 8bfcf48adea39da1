// Command vicinity is the command line of Vicinity. Installed in the PATH as kubectl-vicinity, it is
// "kubectl vicinity".
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"vicinity.dev/vicinity/internal/cli"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After the first signal the command finishes; a second one kills it.
	context.AfterFunc(ctx, stop)
	run := cli.Main
	if strings.HasPrefix(filepath.Base(os.Args[0]), cli.PluginPrefix) {
		run = cli.Plugin
	}
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

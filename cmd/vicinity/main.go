// Command vicinity is the command line of Vicinity. Named kubectl-vicinity and put
// on the PATH it is also "kubectl vicinity".
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
	// The first signal asks the command to finish; a second one ends the program.
	context.AfterFunc(ctx, stop)
	run := cli.Main
	if strings.HasPrefix(filepath.Base(os.Args[0]), cli.PluginPrefix) {
		run = cli.Plugin
	}
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

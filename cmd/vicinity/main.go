// Command vicinity is the command line of Vicinity. Installed in the PATH as kubectl-vicinity, it is
// "kubectl vicinity". As kubectl_complete-vicinity it completes the words of that command for kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
	name, args, run := filepath.Base(os.Args[0]), os.Args[1:], cli.Main
	if strings.HasPrefix(name, cli.CompletionPrefix) {
		args, run = append([]string{cobra.ShellCompRequestCmd}, args...), cli.Plugin
	} else if strings.HasPrefix(name, cli.PluginPrefix) {
		run = cli.Plugin
	}
	return run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

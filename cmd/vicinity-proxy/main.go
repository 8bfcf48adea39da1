// Command vicinity-proxy serves Services on a node: it programs nftables for Services with EndpointGroups, or for all Services, so
// that clients on the node reach the endpoints for their zone.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/kit/daemon"
	"vicinity.dev/vicinity/internal/kit/version"
	"vicinity.dev/vicinity/internal/proxy"
	"vicinity.dev/vicinity/internal/proxy/accounting"
)

func main() { daemon.Main(newCommand()) }

type command struct {
	settings
	cleanup, dryRun, initOnly bool
	// switches is the folder of the kernel's network settings.
	switches string
}

func newCommand() *cobra.Command {
	c := &command{}
	made := &cobra.Command{
		Use:   "vicinity-proxy",
		Short: "Serve Services on a node by topology",
		Long: `Serve Services on a node by topology: program nftables so that clients on the node reach
the endpoints that EndpointGroups choose for their zone.

The rules stay in place when the proxy ends. When it starts, it changes only rules that are wrong.`,
		Version:           version.Read().Version,
		Args:              cobra.NoArgs,
		DisableAutoGenTag: true,
	}
	flags := made.Flags()
	made.RunE = func(made *cobra.Command, _ []string) error {
		if err := c.complete(flags); err != nil {
			return err
		}
		return c.run(made.Context(), made.OutOrStdout())
	}
	flags.SortFlags = false
	flags.BoolVar(&c.cleanup, "cleanup", false, "delete all rules of the proxy from this node and exit")
	flags.BoolVar(&c.dryRun, "dry-run", false, "print the rules that the node would have without --max-elements, and exit")
	flags.BoolVar(&c.initOnly, "init-only", false, "apply the --conntrack flags to the kernel and exit; failures are logged only")
	flags.StringVar(&c.switches, "sysctl-folder", accounting.DefaultSwitches, "folder of the kernel's network settings")
	flags.BoolP("version", "v", false, "print the version and exit")
	c.addFlags(flags)
	return made
}

// complete sets the defaults that depend on other flags, and checks all flags.
func (c *command) complete(flags *pflag.FlagSet) error {
	if err := c.replaceKubeProxy(flags); err != nil {
		return err
	}
	switch {
	case c.cleanup && c.dryRun:
		return errors.New("--cleanup: it is not allowed together with --dry-run")
	case c.initOnly && (c.cleanup || c.dryRun):
		return errors.New("--init-only: it is not allowed together with --cleanup or --dry-run")
	}
	return c.check()
}

func (c *command) run(ctx context.Context, out io.Writer) error {
	switch {
	case c.initOnly:
		c.prepare(ctx, c.log.Logger(os.Stderr))
		return nil
	case c.cleanup:
		return cleanUp(ctx)
	case c.dryRun:
		o, err := c.options()
		if err != nil {
			return err
		}
		if o.API, err = c.api(); err != nil {
			return err
		}
		return proxy.DryRun(ctx, o, out)
	}
	return c.serve(ctx)
}

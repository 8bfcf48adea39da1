package commands

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// dnsInstaller installs the DNS server of a shape, or says why it does not. It fails before there is a
// lab if the requested server cannot work.
func dnsInstaller(wanted shape.Shape, options lab.Options) (func(context.Context, *lab.Cluster) error, error) {
	kind := wanted.DNSServer()
	why, err := lab.WhyNoDNS(wanted, options)
	if err != nil {
		return nil, err
	}
	switch {
	case wanted.DNS == shape.DNSNone:
		why = "--dns none was given"
	case wanted.DNS != "" && why != "":
		return nil, command.UsageErrorf("--dns %s: %s", kind, why)
	}
	return func(ctx context.Context, cluster *lab.Cluster) error {
		if why != "" {
			_, err := fmt.Fprintf(cluster.Options().Log, "there is no DNS server: %s\n", why)
			return err
		}
		return cluster.InstallDNS(ctx, kind)
	}, nil
}

func newLabDNSCommand(s command.Streams, f *labFlags) *cobra.Command {
	var corefile string
	cmd := &cobra.Command{
		Use:   "dns KIND",
		Short: "Change the DNS server of a lab",
		Long: `Dns changes the DNS server of a running lab: vicinity is vicinity-dns, coredns is the same
program without the plugin vicinity, none is no server. It returns when new pods answer all
nodes; until then the old ones answer.`,
		Example: `  vicinity lab dns coredns
  vicinity lab dns vicinity --corefile Corefile`,
		Args: oneName("kind of DNS server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := lab.DNSOptions{Kind: shape.DNS(args[0])}
			if corefile != "" {
				text, err := readFile(s, corefile)
				if err != nil {
					return err
				}
				options.Corefile = text
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			return byFlag(cluster.ConfigureDNS(cmd.Context(), options), map[string]string{"dns": "KIND"})
		},
	}
	cmd.Flags().StringVar(&corefile, "corefile", "", "`FILE` with the Corefile, or - for standard input (default that of the kind)")
	return cmd
}

func readFile(s command.Streams, name string) (string, error) {
	if name == "-" {
		text, err := io.ReadAll(s.In)
		return string(text), err
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

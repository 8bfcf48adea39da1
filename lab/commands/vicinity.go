package commands

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

type installFlags struct {
	vicinity bool
	release  string
	set      []string
}

func (f *installFlags) register(cmd *cobra.Command) {
	f.registerRelease(cmd)
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "`KEY=VALUE` of Vicinity's chart; can be repeated")
}

func (f *installFlags) registerRelease(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.release, "release", "", "install from a `FOLDER` of make package or make release")
}

// whyNot says why Vicinity is not installed in a lab of a shape, or is empty. Invalid flags are an
// error before there is a lab.
func (f *installFlags) whyNot(wanted shape.Shape, options lab.Options) (string, error) {
	why := "--vicinity=false was given"
	if f.vicinity {
		var err error
		if why, err = lab.WhyNoVicinity(wanted, options); err != nil {
			return "", err
		}
	}
	if wanted.Proxy.Vicinity() && why != "" {
		return "", command.UsageErrorf("--proxy %s has no effect: Vicinity is not installed, %s", wanted.Proxy, why)
	}
	if f.release != "" && why != "" {
		return "", command.UsageErrorf("--release has no effect: Vicinity is not installed, %s", why)
	}
	if len(f.set) > 0 && why != "" {
		return "", command.UsageErrorf("--set has no effect: Vicinity is not installed, %s", why)
	}
	return why, f.validate()
}

func (f *installFlags) validate() error {
	if f.release != "" {
		if err := lab.CheckRelease(f.release, f.set); err != nil {
			return command.UsageErrorf("--release: %w", err)
		}
		return nil
	}
	if err := lab.CheckChartValues(f.set); err != nil {
		return command.UsageErrorf("--set: %w", err)
	}
	return nil
}

func (f *installFlags) installer(why string) func(context.Context, *lab.Cluster) error {
	return func(ctx context.Context, cluster *lab.Cluster) error {
		if why != "" {
			_, err := fmt.Fprintf(cluster.Options().Log, "Vicinity is not installed: %s\n", why)
			return err
		}
		return f.install(ctx, cluster)
	}
}

func (f *installFlags) install(ctx context.Context, cluster *lab.Cluster) error {
	if f.release != "" {
		return cluster.InstallRelease(ctx, f.release, f.set...)
	}
	return cluster.InstallVicinity(ctx, f.set...)
}

func newLabVicinityCommand(s command.Streams, lf *labFlags) *cobra.Command {
	f := &installFlags{}
	var remove bool
	cmd := &cobra.Command{
		Use:   "vicinity",
		Short: "Install Vicinity in a lab, or change how it is installed",
		Long: `Vicinity installs Vicinity in a running lab by its chart, and returns when it is ready. An
installed Vicinity gets the given values and the chart's defaults for all others, and pods with
an older program are replaced. With --remove, CRDs and their objects stay.`,
		Example: `  vicinity lab vicinity
  vicinity lab vicinity --set routing.takeOverAuto=true
  vicinity lab vicinity --remove`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case remove && len(f.set) > 0:
				return command.UsageErrorf("--remove and --set do not go together")
			case remove && f.release != "":
				return command.UsageErrorf("--remove and --release do not go together")
			}
			if err := f.validate(); err != nil {
				return err
			}
			cluster, err := lf.open(s)
			if err != nil {
				return err
			}
			if remove {
				if err := cluster.RemoveVicinity(cmd.Context()); err != nil {
					return err
				}
				_, err = fmt.Fprintln(s.Out, "Vicinity is removed")
				return err
			}
			return f.install(cmd.Context(), cluster)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&remove, "remove", false, "uninstall it")
	return cmd
}

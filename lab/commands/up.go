package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/image"
	"vicinity.dev/vicinity/lab/shape"
)

type shapeFlags struct {
	shape.Options
	flags *pflag.FlagSet
}

func (f *shapeFlags) register(cmd *cobra.Command) {
	flags := pflag.NewFlagSet("shape", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringSliceVar(&f.Zones, "zones", []string{"zone-a", "zone-b", "zone-c"}, "`LIST` of zones")
	flags.IntSliceVar(&f.NodesPerZone, "nodes-per-zone", []int{2}, "`NUMBER` of nodes: one for all zones, or a list")
	flags.StringSliceVar(&f.Regions, "region", []string{shape.DefaultRegion}, "`REGION`: one for all zones, or a list")
	flags.StringSliceVar(&f.CPU, "cpu", nil, "CPU of a node: one `QUANTITY` for all zones, or a list (default 4)")
	flags.StringSliceVar(&f.Memory, "memory", nil, "memory of a node: one `QUANTITY` for all zones, or a list (default 8Gi)")
	flags.StringToStringVar(&f.NodeLabels, "node-labels", nil, "key=value `LIST` of labels of all nodes")
	flags.StringVar(&f.Proxy, "proxy", string(shape.ProxyKubeProxy), "`PROXY` of the nodes: kube-proxy, vicinity (vicinity-proxy), both (vicinity-proxy for annotated Services), or none")
	flags.StringVar(&f.DNS, "dns", "", "DNS `SERVER`: vicinity (vicinity-dns), coredns (without the plugin vicinity), or none (default vicinity, where pods can reach it)")
	flags.IntVar(&f.FakeNodes, "fake-nodes", 0, "add `NUMBER` nodes without network, for scale tests")
	flags.BoolVar(&f.SingleStack, "single-stack", false, "leave out IPv6")
	flags.BoolVar(&f.EvictionRequests, "eviction-requests", false, "serve the alpha API EvictionRequest (Kubernetes 1.37 and later)")
	flags.BoolVar(&f.ControlPlaneOnly, "control-plane-only", false, "run the API with nodes and pods but without network; needs no root")
	command.Share(flags, "Shape flags", "zones", "nodes-per-zone", "region", "cpu", "memory", "node-labels", "dns",
		"fake-nodes", "single-stack", "eviction-requests", "control-plane-only")
	f.flags = flags
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(flags)
}

func (f *shapeFlags) given() []string {
	var given []string
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			given = append(given, "--"+flag.Name)
		}
	})
	return given
}

// fieldFlags maps fields of a shape to flags.
var fieldFlags = map[string]string{
	"name":               "--name",
	"proxy":              "--proxy",
	"dns":                "--dns",
	"fakeNodes":          "--fake-nodes",
	"zones":              "--zones",
	"zones.name":         "--zones",
	"zones.region":       "--region",
	"zones.nodes.name":   "--zones",
	"zones.nodes.cpu":    "--cpu",
	"zones.nodes.memory": "--memory",
	"zones.nodes.labels": "--node-labels",
}

func (f *shapeFlags) shape(named *labFlags) (shape.Shape, error) {
	name, err := named.lab()
	if err != nil {
		return shape.Shape{}, err
	}
	f.Name = name
	if f.flags.Changed("zones") && len(f.Zones) == 0 {
		return shape.Shape{}, command.UsageErrorf("--zones is empty; write names, such as a,b,c, or leave it out")
	}
	wanted, err := shape.FromOptions(f.Options)
	var wrong *shape.FieldError
	if err != nil && !errors.As(err, &wrong) {
		return shape.Shape{}, command.UsageErrorf("--%w", err) // the error begins with the option's name
	}
	return wanted, byFlag(err, fieldFlags)
}

func newLabUpCommand(s command.Streams, f *labFlags) *cobra.Command {
	shaped := &shapeFlags{}
	installed := &installFlags{}
	var keep bool
	var images string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring a lab up",
		Long: `Up brings a lab up and returns when its nodes are ready and its Services answer. If the lab is
up already, it fails and changes nothing.

Up installs Vicinity by its chart if the program vicinity-controller is beside this one, or
from --release. "lab vicinity" changes the values later. Pods use vicinity-dns, if its program is
beside this one; "lab dns" changes that later, unless the lab came up with --dns none.

--images FILE maps other names of images, or patterns of names, to programs of this machine;
the first match counts:

  images:
  - name: agnhost                     # any registry, any tag
    program: bin/agnhost              # paths are relative to the file's folder
    mountPath: /agnhost               # where containers have it; by default /.image/agnhost
    args: [pause]                     # unless the pod says command or args
    mounts: {/coredns: bin/coredns}   # more files or folders of this machine
  - name: registry.example.org/web/*
    entryPoint: [busybox, httpd, -f]  # by default the program
    env: {MODE: plain}
    root: web                         # a folder with files of the container's own

A container can change the files of root, which are a copy in memory.

A stopped node is not ready after about 10 s, and its pods are evicted 30 s later. In other
clusters that takes 50 s and 5 minutes.`,
		Example: `  vicinity lab up
  vicinity lab up --zones a,b,c --nodes-per-zone 3,2,1
  vicinity lab up --control-plane-only --fake-nodes 1000`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := shaped.shape(f)
			if err != nil {
				return err
			}
			options := f.options(s.Err)
			options.Keep = keep
			if options.Images, err = readImages(images, wanted); err != nil {
				return err
			}
			why, err := installed.whyNot(wanted, options)
			if err != nil {
				return err
			}
			dns, err := dnsInstaller(wanted, options)
			if err != nil {
				return err
			}
			return bringUp{shape: wanted, options: options, vicinity: installed.installer(why), dns: dns}.run(cmd.Context(), s)
		},
	}
	shaped.register(cmd)
	cmd.Flags().BoolVar(&installed.vicinity, "vicinity", true, "install Vicinity, if its program is built")
	installed.register(cmd)
	cmd.Flags().StringVar(&images, "images", "", "YAML `FILE` that maps images to programs")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep what exists when up fails")
	return cmd
}

func readImages(name string, wanted shape.Shape) (image.Map, error) {
	if name == "" {
		return nil, nil
	}
	if wanted.ControlPlaneOnly {
		return nil, command.UsageErrorf("--images has no effect: a lab that is only a control plane runs no containers")
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--images: %w", err)
	}
	defer file.Close()
	images, err := image.Read(file, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("--images %s: %w", name, err)
	}
	return images, nil
}

type bringUp struct {
	shape         shape.Shape
	options       lab.Options
	vicinity, dns func(context.Context, *lab.Cluster) error
}

func (b bringUp) install(ctx context.Context, cluster *lab.Cluster) error {
	if err := b.vicinity(ctx, cluster); err != nil {
		return fmt.Errorf("the lab is up, but Vicinity does not work in it: %w", err)
	}
	if err := b.dns(ctx, cluster); err != nil {
		return fmt.Errorf("the lab is up, but its DNS server does not work: %w", err)
	}
	return nil
}

// run brings the lab up and says how to go on. If an installation fails, the lab stays up for
// inspection.
func (b bringUp) run(ctx context.Context, s command.Streams) error {
	begun := time.Now()
	cluster, err := lab.Up(ctx, b.shape, b.options)
	if err != nil {
		return err
	}
	failed := b.install(ctx, cluster)
	// An interrupt here removes the lab, as an earlier one does.
	if failed != nil && ctx.Err() != nil && !b.options.Keep {
		return errors.Join(failed, cluster.Down(context.WithoutCancel(ctx)))
	}
	_, err = fmt.Fprintf(s.Out, "lab %s is up after %.1f s: %s\n\n  export KUBECONFIG=%s\n",
		b.shape.Name, time.Since(begun).Seconds(), describeShape(b.shape), cluster.Kubeconfig())
	return errors.Join(failed, err)
}

func describeShape(wanted shape.Shape) string {
	text := fmt.Sprintf("%s in %s", plaintext.Count(int64(len(wanted.Nodes())), "node", "nodes"), plaintext.Count(int64(len(wanted.Zones)), "zone", "zones"))
	if wanted.FakeNodes > 0 {
		text += " and " + plaintext.Count(int64(wanted.FakeNodes), "node", "nodes") + " without network"
	}
	if wanted.ControlPlaneOnly {
		text += ", no network at all"
	}
	return text
}

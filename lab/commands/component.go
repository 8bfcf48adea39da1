package commands

import (
	"context"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
)

func newLabComponentCommand(s command.Streams, f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "component",
		Short: "Stop, start, kill and pause components of a lab",
		Long: `Component makes a component of the lab fail, and mends it again. "lab status" lists
the components: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, gateway,
runtime, which runs the containers of all nodes, agent, which stands in for nodes without
network, and on each node kubelet, kube-proxy and vicinity-proxy, as far as the lab has
them. A vicinity-proxy is a pod: its node starts it again when it was stopped or killed.`,
		Example: `  vicinity lab component kill kube-apiserver
  vicinity lab component start kube-apiserver`,
	}
	verb := func(name, short string, done string, do func(*lab.Cluster, context.Context, string) error) {
		cmd.AddCommand(labVerb{
			name: name, short: short, what: "component", done: done,
			do: func(ctx context.Context, c *lab.Cluster, component string) error { return do(c, ctx, component) },
		}.command(s, f))
	}
	verb("start", "Start a component that was stopped or killed, and wait until it is ready", "started", (*lab.Cluster).StartComponent)
	verb("stop", "End a component as an orderly shutdown does", "stopped", (*lab.Cluster).StopComponent)
	verb("kill", "End a component at once, as a crash does", "killed", (*lab.Cluster).KillComponent)
	verb("pause", "Halt a component where it is: it keeps its connections and does not answer", "paused", (*lab.Cluster).PauseComponent)
	verb("resume", "Let a paused component go on", "resumed", (*lab.Cluster).ResumeComponent)
	return cmd
}
